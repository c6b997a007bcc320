"""Logits of the residual stream: layer by layer, or split into contributions of its parts."""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
