"""Figure of maps over an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from interp.draw.colours import palette

if TYPE_CHECKING:
    import plotly.graph_objects as go

Array = np.ndarray


def shown_pixels(image: Float[Array, "channel row column"]) -> UInt8[Array, "row column 3"]:
    """Return an image as bytes: its smallest value black, its largest white."""
    low, high = float(image.min()), float(image.max())
    scaled = (image - low) / max(high - low, 1e-12) * 255
    colours = scaled if len(scaled) == 3 else np.repeat(scaled[:1], 3, 0)
    return np.round(colours).astype(np.uint8).transpose(1, 2, 0)


def map_figure(
    image: Float[Array, "channel row column"], maps: Mapping[str, Float[Array, "row column"]]
) -> go.Figure:
    """Draw an image, and beside it each map over the same image in grey.

    Args:
        image: the image, as the model takes it.
        maps: scores of patches by name.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    pixels = shown_pixels(image)
    grey = np.repeat(pixels.mean(2, keepdims=True), 3, 2).astype(np.uint8)
    names = ["image", *maps]
    figure = make_subplots(1, len(names), subplot_titles=names, horizontal_spacing=0.03)
    figure.add_trace(go.Image(z=pixels), 1, 1)
    high, wide = pixels.shape[:2]
    for i, cells in enumerate(maps.values(), start=2):
        rows, columns = cells.shape
        size = max(float(np.abs(cells).max()), 1e-12)
        signed = bool(cells.min() < 0)
        figure.add_trace(go.Image(z=grey, hoverinfo="skip"), 1, i)
        figure.add_trace(
            go.Heatmap(
                z=cells, opacity=0.6, colorscale=palette(signed), zmin=-size if signed else 0.0,
                zmax=size, showscale=False, hovertemplate="%{z:.4g}<extra></extra>",
                x=(np.arange(columns) + 0.5) * wide / columns - 0.5,
                y=(np.arange(rows) + 0.5) * high / rows - 0.5,
            ),
            1, i,
        )  # fmt: skip
    for i in range(1, len(names) + 1):
        figure.update_xaxes(visible=False, range=[-0.5, wide - 0.5], row=1, col=i)
        figure.update_yaxes(visible=False, range=[high - 0.5, -0.5], row=1, col=i)
    figure.update_layout(template="plotly_white", height=320, width=260 * len(names))
    return figure
