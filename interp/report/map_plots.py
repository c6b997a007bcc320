"""Figures of maps over images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.errors import OptionError
from interp.vision.overlay import map_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def image_maps_figure(found: ResultRows, item: int = 0) -> go.Figure:
    """Draw the maps of one image over it, one panel per method.

    Args:
        found: the result of `interp.vision.image_maps`.
        item: index of the image.

    Raises:
        OptionError: there is no such image.
    """
    _require_image(found, item)
    maps = dict(zip(found.methods, found.maps[:, item], strict=True))
    return map_figure(found.pixels[item], maps)


def query_maps_figure(found: ResultRows, item: int = 0, *, of: str | None = None) -> go.Figure:
    """Draw where each head of one class looks, over the image.

    Args:
        found: the result of `interp.vision.query_maps`.
        item: index of the image.
        of: class; the one with the largest logit by default.

    Raises:
        OptionError: there is no such image or class.
    """
    _require_image(found, item)
    if of is not None and of not in found.classes:
        raise OptionError(f"there is no class {of!r}; known: {', '.join(found.classes)}")
    c = int(found.logits[item].argmax()) if of is None else found.classes.index(of)
    heads = {f"{found.classes[c]}, head {h}": x[c] for h, x in enumerate(found.maps[item])}
    return map_figure(found.pixels[item], heads)


def _require_image(found: ResultRows, item: int) -> None:
    if not 0 <= item < len(found.pixels):
        raise OptionError(f"there is no image {item}; there are {len(found.pixels)}, from 0")
