"""Loading, reading and editing of transformers; `interp.load` returns a checked `Model`."""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
