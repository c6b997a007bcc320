"""A view with a model behind it: type a prompt, see every head, zoom, ablate."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
