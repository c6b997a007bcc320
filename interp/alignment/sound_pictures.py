"""The spectrogram of one recording above the cross attention that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.alignment.speech import SECONDS_PER_FRAME, cross_maps
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from torch import Tensor

    from interp.model.model import Model


@takes_model
def spectrogram_attention(
    model: Model,
    inputs: Mapping[str, Tensor],
    head: Any,
    *,
    recording: int = 0,
    labels: Sequence[str] | None = None,
) -> go.Figure:
    """Draw the spectrogram of a recording, and below it the attention of one head over its time.

    Args:
        model: an encoder-decoder that reads sound, such as Whisper.
        inputs: `input_features` [recording, band, frame] and `decoder_input_ids`.
        head: the cross-attention head.
        recording: index of the recording.
        labels: text of each decoder token; by default its id.

    Raises:
        OptionError: there is no such head or recording, or not one label per token.
        PromptError: the inputs hold no spectrogram or no decoder tokens.
    """
    if "input_features" not in inputs or "decoder_input_ids" not in inputs:
        raise PromptError("give input_features and decoder_input_ids, as the processor makes them")
    features, ids = inputs["input_features"], inputs["decoder_input_ids"]
    if not 0 <= recording < len(features):
        raise OptionError(f"recording {recording} is not one of {len(features)}, counted from 0")
    one = {name: x[recording : recording + 1] for name, x in inputs.items()}
    maps = cross_maps(model, one)
    parsed = Head.parse(head)
    wanted = Head(parsed.layer, parsed.head, "cross")
    if wanted not in maps:
        raise OptionError(f"{model.name} has no cross-attention head L{parsed.layer}H{parsed.head}")
    tokens = [str(x) for x in ids[recording].tolist()] if labels is None else list(labels)
    if len(tokens) != ids.shape[1]:
        raise OptionError(f"{len(tokens)} labels for {ids.shape[1]} decoder tokens; give one each")
    weights = maps[wanted][0]
    bands = features[recording].detach().to(torch.float32).cpu().numpy()
    seconds = weights.shape[-1] * SECONDS_PER_FRAME
    title = f"attention of cross.L{parsed.layer}H{parsed.head}"
    return sound_figure(bands, weights.astype(np.float32), tokens, seconds, title)


def sound_figure(
    bands: Float[np.ndarray, "band frame"],
    attention: Float[np.ndarray, "token position"],
    tokens: Sequence[str],
    seconds: float,
    title: str,
    starts: Sequence[tuple[float, int]] = (),
) -> go.Figure:
    """Draw a spectrogram, and below it attention over the same time."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    from interp.draw.colours import COLOURS, palette
    from interp.draw.page import text

    figure = make_subplots(
        2, 1, shared_xaxes=True, vertical_spacing=0.12, subplot_titles=("spectrogram", text(title))
    )
    for row, z in ((1, bands), (2, attention)):
        step = seconds / z.shape[1]
        cells = go.Heatmap(
            z=z,
            x=step * (np.arange(z.shape[1]) + 0.5),
            colorscale=palette(False),
            showscale=False,
            hovertemplate="%{x:.2f} s: %{z:.3g}<extra></extra>",
        )
        figure.add_trace(cells, row, 1)
    if starts:
        figure.add_scatter(
            x=[second for second, _ in starts],
            y=[row for _, row in starts],
            mode="markers",
            marker={"color": COLOURS[1], "size": 9},
            name="found start",
            showlegend=False,
            row=2,
            col=1,
        )
    figure.update_yaxes(title="band", row=1, col=1)
    figure.update_yaxes(
        title="token",
        autorange="reversed",
        tickvals=list(range(len(tokens))),
        ticktext=[text(x) for x in tokens],
        row=2,
        col=1,
    )
    figure.update_xaxes(title="seconds", row=2, col=1)
    return figure.update_layout(template="plotly_white", height=520)
