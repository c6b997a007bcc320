"""Contrast tasks: prompts that show a behaviour, and the same prompts without it."""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
