"""The picture of maps over an image: the image alone, then each map over it in grey."""

from __future__ import annotations

import numpy as np

from interp.vision.overlay import map_figure


def test_the_image_stands_alone_and_shows_through_each_map() -> None:
    image = np.random.default_rng(0).normal(size=(3, 8, 8))
    cells = np.array([[0.0, 1.0], [2.0, 3.0]])
    figure = map_figure(image, {"plain": cells, "signed": cells - 1})
    alone, plain, signed = figure.data
    assert np.isnan(alone.z).all()
    assert (alone.opacity, plain.opacity, signed.opacity) == (None, 0.6, 0.6)
    assert (plain.zmin, plain.zmax) == (0, 3)
    assert (signed.zmin, signed.zmax) == (-2, 2)
    assert [x.layer for x in figure.layout.images] == ["above", "below", "below"]
