"""Heads and caches: what a key-value cache must keep for each head, scored per head.

Each file declares a metric, or a family of them. They
are scored on request: `interp score MODEL -m cache`.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
