"""Results, errors, prompts, declarations, files and statistics that all other folders use."""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
