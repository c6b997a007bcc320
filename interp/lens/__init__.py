"""The residual stream read as logits: layer by layer, or split into what was added to it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
