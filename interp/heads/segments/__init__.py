"""Attention between segments of a prompt: text, images, registers; scored per head.

Each file declares a metric, or a family of them. They
are scored on request, on prompts that have these segments:
`interp score MODEL -m segments --image FILE`.
"""

from interp.core.public_names import lazy_analyses

lazy_analyses(__name__)
