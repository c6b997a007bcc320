"""Features of heads whose signal is known: one head carries the label, the others are noise."""

from __future__ import annotations

import numpy as np

from interp.probes import HeadFeatures

PLANTED = ("decoder", 1, 2)


def made(
    documents: int = 30,
    each: int = 4,
    *,
    signal: float = 0.0,
    shared: float = 1.0,
    seed: int = 0,
    layers: int = 2,
    heads: int = 4,
    d: int = 3,
    inside: bool = False,
) -> tuple[HeadFeatures, np.ndarray, np.ndarray]:
    """Features, labels and documents; `shared` is the size of what items of a document share.

    Labels are of documents, or of items if `inside`.
    """
    rng = np.random.default_rng(seed)
    where = np.repeat(np.arange(documents), each)
    y = np.arange(documents) % 2
    y = rng.permutation(y)[where] if not inside else rng.integers(0, 2, len(where))
    places = [("decoder", n, h) for n in range(layers) for h in range(heads) for _ in range(d)]
    x = rng.normal(size=(len(where), len(places)))
    x += shared * rng.normal(size=(documents, len(places)))[where]
    x[:, [p == PLANTED for p in places]] += signal * (2 * y[:, None] - 1)
    ids = tuple(map(str, range(len(where))))
    about = {"name": "made", "hash": "abc"}
    return HeadFeatures(x, tuple(places), "made", ids, about), y, where
