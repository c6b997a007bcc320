"""Cross attention: where in the source the rows of the decoder look, scored per head.

Each file declares a metric, or a family of them. They
are scored on request: `interp score MODEL -m cross`.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
