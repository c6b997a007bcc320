"""A circuit: heads and the edges between them, the tasks it explains, and how well it does."""

from interp.core.face import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__, declared=("methods",))
