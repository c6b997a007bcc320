"""Pages made of results: head scores, attributions, faithfulness, trees, checks, attention."""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
