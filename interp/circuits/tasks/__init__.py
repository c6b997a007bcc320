"""Contrast tasks: prompts that show a behaviour, and the same prompts without it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
