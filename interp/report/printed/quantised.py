"""Screen output of `interp compare quantised`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.report.printed.tables import aligned_columns

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def quantised_summary(found: ResultRows) -> str:
    """Return the losses, and the head whose output changed most."""
    first = found.top(1).to_pandas().iloc[0]
    parts = ", ".join(f"{x['what']} {x['loss']:.4g}" for x in found.losses)
    return (
        f"QuantisedHeads of {len(found)} heads, loss in nats per token on held-out prompts: "
        f"{parts}; L{first['layer']}H{first['head']} changes most ({first['score']:.0%} of its "
        "output)"
    )


def quantised_line(found: ResultRows) -> str:
    """Return the losses before and after, as the first line of a page."""
    by = {x["what"]: x["loss"] for x in found.losses}
    names = " and ".join(f"L{r['layer']}H{r['head']}" for r in found if r["chosen"])
    return (
        f"The loss goes from {by['full precision']:.4g} to {by['quantised']:.4g} nats per token, "
        f"and to {by['chosen heads restored']:.4g} with the weights of {names} restored"
    )


def quantised_text(results: Sequence[ResultRows], *, top: int = 5) -> str:
    """Format the losses, and the heads that change most.

    Args:
        results: one per model.
        top: number of heads to print; 0 for all.
    """
    return "".join(_one(result, top) for result in results)


def _one(found: ResultRows, top: int) -> str:
    method = found.provenance["options"]["method"]
    lines = [
        f"{found.provenance['model_id']}, weights by {method}",
        f"  {quantised_line(found)}.",
        f"  loss in nats per token on {found.losses[0]['n']} held-out prompts, ± its standard "
        "error, and the share of the quantised weights that is restored:",
        aligned_columns(
            [
                (x["what"], f"{x['loss']:.4f} ± {x['sem']:.4f}", f"{x['share']:.1%}")
                for x in found.losses
            ],
            "    ",
        ),
        "  heads by the change of their output, with that of their rows and the loss that "
        "restoring them gives back:",
        aligned_columns(
            [
                ("", "output", "16 bits", "rows", "loss", "role before", "role after"),
                *(
                    (
                        f"L{r['layer']}H{r['head']}{'*' * bool(r['chosen'])}",
                        f"{r['score']:.1%}",
                        f"{r['null']:.1%}",
                        f"{r['pattern_change']:.3f}",
                        f"{r['gain']:+.4f}",
                        r["role_before"] or "-",
                        r["role_after"] or "-",
                    )
                    for r in found.top(top or len(found)).to_pandas().to_dict("records")
                ),
            ],
            "    ",
        ),
        "  * restored together, chosen on other prompts",
    ]
    return "\n".join([*lines, ""])
