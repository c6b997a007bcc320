"""Lenses as text: what layers predict, the error of a tuned lens, contributions to a logit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.ties import within
from interp.core.tokens import shown
from interp.report.printed.tables import aligned_table

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def decoder_lens_text(found: ResultRows) -> str:
    """Format the loss by depth of the encoder, with its interval."""
    frame = found.to_pandas()
    table = [
        ("encoder read up to", "loss", "95 % interval", "rank", "error", "first target as read")
    ]
    for r in frame.to_dict("records"):
        ends = "none" if r["low"] != r["low"] else f"{r['low']:.3g} to {r['high']:.3g}"
        error = "none" if r["rank_sem"] != r["rank_sem"] else f"{r['rank_sem']:.2g}"
        table.append((r["depth"], f"{r['score']:.3g}", ends, f"{r['rank']:.3g}", error, r["reads"]))
    norm = f"{found.norm} applied to each depth" if found.norm else "no final norm"
    return (
        f"DecoderLens, nats per target token on {int(frame['n'].iloc[0])} prompts, {norm}; rank of "
        "the right token, 0 the highest; the null is the embedding. At the last depth the logits "
        f"equal the model's own {within(found.residual)}\n{aligned_table(table)}\n"
        f"  right: {' '.join(found.labels)}"
    )


def lens_text(found: ResultRows, position: int, name: str) -> str:
    """Format the first tokens at one position, and the target's rank, by depth."""
    from interp.lens.finish import row_of

    at = row_of(position, len(found.tokens))
    lines = [f"{name} after {shown(found.tokens[at])!r} (position {at})"]
    for d, depth in enumerate(found.depths):
        each = zip(found.top_tokens[d][at], found.top_logits[d, at], strict=True)
        best = ", ".join(f"{shown(token)} {logit:.2f}" for token, logit in each)
        rank = found.target_ranks
        says = "" if rank is None else f"  {found.target}: rank {rank[d, at] + 1}"
        lines.append(f"  {depth:<10} {best}{says}")
    return "\n".join(lines)


def tuned_text(found: ResultRows) -> str:
    """Format the errors of both lenses by depth, on held-out texts, and what training leaves."""
    from interp.lens.tuned import STEPS

    rows = {(r["metric"], r["depth"]): r for r in found.to_pandas().to_dict("records")}
    number = found.notes["held-out texts"]
    lines = [f"KL from the model's distribution in nats, {number} held-out texts [95 %]"]
    for depth in dict.fromkeys(depth for _, depth in rows):
        cells = []
        for metric in ("logit lens", "tuned lens", "gain"):
            row = rows[metric, depth]
            cells.append(f"{metric} {row['score']:.3f} [{row['low']:.3f}, {row['high']:.3f}]")
        lines.append(f"  {depth:<10} {', '.join(cells)}, p {rows['gain', depth]['p_holm']:.2g}")
    null = rows["tuned lens", depth]["null"]
    lines += [
        f"  the mean distribution of the training texts: {null:.3f}",
        f"  {STEPS} steps of Adam per depth; training to convergence was 4 to 9 % lower on a model "
        "of five layers",
    ]
    return "\n".join([*lines, ""])


def direct_text(found: ResultRows, top: int) -> str:
    """Format the largest mean contributions, with their nulls."""
    part = found.top(top, by="abs").to_pandas().to_dict("records")
    lines = [f"{part[0]['metric']}, mean over {part[0]['n']} text(s) [95 %], null: random tokens"]
    for row in part:
        name = row.get("part") or f"L{row['layer']}H{row['head']} from {row['source']}"
        ends = "" if row["low"] != row["low"] else f" [{row['low']:+.3f}, {row['high']:+.3f}]"
        says = f"null {row['null']:+.3f}, p {row['p_holm']:.2g}"
        lines.append(f"  {name:<18} {row['score']:+.3f}{ends}  {says}")
    return "\n".join([*lines, ""])
