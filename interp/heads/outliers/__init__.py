"""Attention sinks, no-op heads and outlier activations.

    sinks.py        attention sinks at any position; heads dormant on one domain only
    written.py      size and concentration of head outputs
    channels.py     massive values in queries and keys, and a test of their effect
    activations.py  infinity norm, kurtosis and massive activations of whole layers

All functions accept user-supplied prompts. Head scores are also available as metrics (`interp score
-m sink`), measured on random tokens.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
