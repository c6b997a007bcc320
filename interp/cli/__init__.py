"""Command line: `main` finds one command per file in `commands/`."""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
