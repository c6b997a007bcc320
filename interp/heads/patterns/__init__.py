"""Attention patterns for display at three scales: all heads, one head, one query-key pair.

`view` runs a model on a short text and shows its patterns; `View.of_patterns` shows arrays from any
library; `long_view` shows a prompt of thousands of tokens as exact masses of blocks, without
storing a pattern. All of them display in a notebook and write one page that works offline.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
