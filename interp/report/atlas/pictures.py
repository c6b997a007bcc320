"""Figures of results that are pictures: alignments, spectrograms, maps over images, long texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from interp.draw.svg import element
from interp.report.atlas.document import Alignment, Maps, Sound


def alignment_picture(figure: Alignment) -> Markup:
    """Return the weights of a sentence pair as a matrix, and its links as lines."""
    from interp.alignment.pictures import PairAlignment
    from interp.core.head import Head
    from interp.draw.figure import svg

    sure = figure["sure"]
    pair: Any = PairAlignment(
        Head(figure["layer"], figure["head"], "cross"),
        figure["row"],
        tuple(figure["source"]),
        tuple(figure["target"]),
        _array(figure["weights"]),
        _links(figure["links"]),
        None if sure is None else _links(sure),
        _links(figure["possible"]),
    )
    return element("div", svg(pair.lines()), svg(pair.matrix()))


def sound_picture(figure: Sound) -> Markup:
    """Return a spectrogram above the attention over the same time."""
    from interp.alignment import sound_pictures
    from interp.draw.figure import svg

    starts = [(float(second), int(row)) for second, row in figure["starts"]]
    return svg(
        sound_pictures.sound_figure(
            _array(figure["bands"]),
            _array(figure["attention"]),
            figure["tokens"],
            figure["seconds"],
            figure["title"],
            starts,
        )
    )


def maps_picture(figure: Maps) -> Markup:
    """Return every image with its maps."""
    from interp.draw.figure import svg
    from interp.vision.overlay import map_figure

    drawn = [
        svg(map_figure(_array(one["pixels"]), {k: _array(v) for k, v in one["maps"].items()}))
        for one in figure["images"]
    ]
    return element("div", *drawn)


def _array(values: Any) -> np.ndarray:
    return np.array(values, dtype=float)


def _links(values: Any) -> frozenset[tuple[int, int]]:
    return frozenset((int(source), int(target)) for source, target in values)
