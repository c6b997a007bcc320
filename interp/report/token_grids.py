"""Heat maps of tokens: depths by positions, and pairs of tokens of two sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.draw.charts import bars, grid
from interp.report.rows import bars_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def decoder_lens_figure(found: ResultRows, k: int = 20) -> go.Figure:
    """Draw the loss at each depth with its 95 % interval, in the order of the encoder."""
    rows = found.to_pandas().head(k)
    return bars(rows, list(rows["depth"]), title="DecoderLens", unit="nats per token")


def logit_lens_figure(found: ResultRows, k: int = 20) -> go.Figure:
    """Draw the scores, depth by position, or the k rows of `top` as bars."""
    if len(found) != len(found.depths) * len(found.tokens):
        return bars_of(found, k)
    score = found.top_logits[..., 0] if found.target is None else found.target_logits
    hover = [
        [
            f"{depth}, {token!r}: first {first[0]!r}"
            for token, first in zip(found.tokens, row, strict=True)
        ]
        for depth, row in zip(found.depths, found.top_tokens, strict=True)
    ]
    return grid(score, found.depths, found.tokens, hover=hover, title=found.metric, unit="logit")


def similarity_matrix_figure(found: ResultRows, k: int = 20) -> go.Figure:
    """Draw the matrix, or the k pairs of `top` as bars."""
    if len(found) != found.matrix.size:
        return bars_of(found, k)
    title = f"cosine {found.cosine:.3g}, of which {found.matrix.sum():.3g} in pairs of tokens"
    hover = [[f"{a!r} and {b!r}" for b in found.second] for a in found.first]
    return grid(found.matrix, found.first, found.second, hover=hover, title=title, unit="cosine")
