"""Attention that goes nowhere and numbers that are too large: sinks, no-ops, outliers.

    sinks.py        attention parked on one token, anywhere in a prompt; dormant on one domain only
    written.py      how much heads write, and how unevenly
    channels.py     massive values in queries and keys, and the test of what depends on them
    activations.py  infinity norm, kurtosis and massive activations of whole layers

All take prompts of your own. Scores of heads are also metrics (`interp score -m sink`), measured
there on random tokens.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
