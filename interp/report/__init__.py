"""Pages made of results: head scores, attributions, faithfulness, trees, checks, attention."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
