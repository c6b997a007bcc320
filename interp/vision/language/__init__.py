"""Heads of models that read pictures inside text, and the tokens of a picture.

    sinks.py      tokens of a picture that are sinks, and the heads that attend to them
    grounding.py  heads that attend to the picture, and whether the answer needs them
    gaze.py       heads that look at the part of a picture that the text asks about
    dropping.py   loss when tokens of the picture are dropped (FastV)
    contrast.py   answers against a second run on less of the picture (AvisC, DAMRO)

Attention mass on pictures by layer and head is the metric `segment_mass`.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
