"""The only room that knows where a transformer keeps its heads; `interp.load` is its door."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
