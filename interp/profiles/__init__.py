"""Profiles: what every head does on a corpus, judged on documents that did not fit it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
