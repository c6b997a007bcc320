"""Sparse dictionaries on heads: training, metrics beside controls, features scored as heads."""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
