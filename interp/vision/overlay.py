"""Figure of maps over an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from interp.draw.colours import palette
from interp.draw.sprite import colour_png, data_url

if TYPE_CHECKING:
    import plotly.graph_objects as go

Array = np.ndarray


def shown_pixels(image: Float[Array, "channel row column"]) -> UInt8[Array, "row column 3"]:
    """Return an image as bytes: its smallest value black, its largest white."""
    low, high = float(image.min()), float(image.max())
    scaled = (image - low) / max(high - low, 1e-12) * 255
    colours = scaled if len(scaled) == 3 else np.repeat(scaled[:1], 3, 0)
    return np.round(colours).astype(np.uint8).transpose(1, 2, 0)


def reduced_image(
    image: Float[Array, "channel row column"], side: int
) -> Float[Array, "channel y x"]:
    """Return an image of at most side x side pixels, each the mean of those that it covers."""
    for axis in (1, 2):
        size = image.shape[axis]
        if size > side:
            starts = np.arange(side) * size // side
            counts = np.diff([*starts, size]).reshape([-1 if a == axis else 1 for a in range(3)])
            image = np.add.reduceat(image, starts, axis) / counts
    return image


def map_figure(
    image: Float[Array, "channel row column"], maps: Mapping[str, Float[Array, "row column"]]
) -> go.Figure:
    """Draw an image, and beside it each map over the same image in grey."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    pixels = shown_pixels(image)
    grey = np.repeat(pixels.mean(2, keepdims=True), 3, 2).astype(np.uint8)
    names = ["image", *maps]
    figure = make_subplots(1, len(names), subplot_titles=names, horizontal_spacing=0.03)
    first = next(iter(maps.values()))
    panels = [np.full(first.shape, np.nan), *maps.values()]
    for i, cells in enumerate(panels, start=1):
        rows, columns = cells.shape
        signed = bool(np.nanmin(cells, initial=0.0) < 0)
        size = max(float(np.nanmax(np.abs(cells), initial=0.0)), 1e-12)
        figure.add_trace(
            go.Heatmap(
                z=cells,
                opacity=0.6 if i > 1 else None,
                colorscale=palette(signed),
                zmin=-size if signed else 0.0,
                zmax=size,
                showscale=False,
                hovertemplate="%{z:.4g}<extra></extra>",
            ),
            1,
            i,
        )
        figure.add_layout_image(
            source=data_url(colour_png(pixels if i == 1 else grey)),
            row=1,
            col=i,
            x=-0.5,
            y=-0.5,
            sizex=columns,
            sizey=rows,
            sizing="stretch",
            layer="above" if i == 1 else "below",
        )
        figure.update_xaxes(visible=False, row=1, col=i)
        figure.update_yaxes(visible=False, autorange="reversed", row=1, col=i)
    figure.update_layout(template="plotly_white", height=320, width=260 * len(names))
    return figure
