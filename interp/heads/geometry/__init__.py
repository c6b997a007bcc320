"""Geometry and statistics of heads on prompts: ranks, spectra, similarity, sparsity.

Each file declares a metric, or a family of them. They
are scored on request: `interp score MODEL -m geometry`.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
