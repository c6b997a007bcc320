"""Profiles: what every head does on a corpus, judged on documents that did not fit it."""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
