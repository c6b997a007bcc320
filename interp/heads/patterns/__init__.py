"""Attention patterns for display: of every head, of one head, and of one query and key.

`view` captures the patterns of a model on a short text; `View.of_patterns` takes arrays of any
library; `long_view` computes exact sums over blocks of a prompt of thousands of tokens without
storing a pattern. All results are displayed in notebooks and write one page that works offline.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
