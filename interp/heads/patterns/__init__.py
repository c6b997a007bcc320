"""Attention to look at, in three scales: every head, one head, one query and key by dimension.

`view` runs a model on a short text and shows its patterns; `View.of_patterns` shows arrays that any
library made; `long_view` shows a prompt of thousands of tokens as exact masses of blocks, never as
a pattern. All of them show themselves in a notebook and write one page that works offline.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
