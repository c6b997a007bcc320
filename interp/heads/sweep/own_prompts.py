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
    experiments = [b.label for b in bounds if b.analysis.kind == "experiment"]
    if not experiments:
        return
    text = (
        f"{', '.join(experiments)} make{'s' if len(experiments) == 1 else ''} special prompts, so "
        f"--file and --max-length do not apply; use their options (interp list metrics NAME)"
    )
    if len(experiments) == len(bounds):
        raise OptionError(text)
    voice.note(text)
