"""Table of a DecoderLens, for the commands on translation and on speech."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.report.printed.tables import aligned_table

if TYPE_CHECKING:
    from interp.lens import DecoderLens


def decoder_lens_text(found: DecoderLens) -> str:
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
        f"differ from the model's own by {found.residual:.1g} at most\n{aligned_table(table)}\n"
        f"  right: {' '.join(found.labels)}"
    )
