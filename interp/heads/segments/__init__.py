"""Attention between segments of a prompt: text, images, registers; scored per head.

Each file declares a metric, or a family of them. They
are scored on request, on prompts that have these segments:
`interp score MODEL -m segments --image FILE`.
"""

from interp.core.room import furnish

furnish(__name__)
