"""Attention to categories of tokens: parts of speech, code, brackets, topics, entities, labels.

Each file declares a metric, or a family of them. They
are scored on request: `interp score MODEL -m categories`.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
