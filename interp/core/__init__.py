"""Results, errors, prompts, declarations, files and statistics that all other folders use."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
