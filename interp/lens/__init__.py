"""Logits of the residual stream: layer by layer, or split into contributions of its parts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
