"""Loading, reading and editing of transformers; `interp.load` returns a checked `Model`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
