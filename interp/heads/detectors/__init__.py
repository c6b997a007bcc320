"""Detectors, by the positions an ideal head attends to, and statistics of attention rows.

Each file declares a metric, or a family of them.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
