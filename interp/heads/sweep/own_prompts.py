"""Notes on metrics that make their own prompts."""

from __future__ import annotations

from collections.abc import Sequence

from interp.core.errors import OptionError
from interp.core.protocols import Reporter
from interp.heads.declaration import BoundAnalysis


def tell_own_prompts(bounds: Sequence[BoundAnalysis], voice: Reporter) -> None:
    """Report that experiments make their own prompts, so that the user's are not ignored silently.

    Raises OptionError if only experiments are requested.
    """
    own = [b.label for b in bounds if b.analysis.kind == "experiment"]
    if not own:
        return
    text = (
        f"{', '.join(own)} make{'s' if len(own) == 1 else ''} special prompts, so --file "
        f"and --max-length do not apply; use their options (interp list metrics NAME)"
    )
    if len(own) == len(bounds):
        raise OptionError(text)
    voice.note(text)
