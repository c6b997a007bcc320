"""Heads and whole texts: chains of thought, sources of an answer, graphs of attention.

    chains    which sentences of a chain of thought later ones rest on, and the heads that read them
    context   which sources an answer rests on, and how reliable heads are as judges of that
    graphs    attention between tokens as a graph

The command is `interp texts`. Importing this package does not load torch.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
