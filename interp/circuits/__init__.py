"""Circuits: heads and the edges between them, the tasks they explain, and their evaluation."""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, declared=("methods",))
