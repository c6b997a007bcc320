"""Option --reference: the prompts over which a replacement mean is taken."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.causal.game.interventions import INTERVENTIONS, ON_PAIRS, over_corpus
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.model import Model


def require_reference(kind: str, reference: Path | None, of: str = "--kind") -> None:
    """Raise OptionError if the kind of ablation and the reference prompts do not fit."""
    needed = INTERVENTIONS[ON_PAIRS.get(kind, kind)].needs == "corpus"
    if needed and reference is None:
        raise OptionError(
            f"{of} {kind} needs user-supplied prompts; name their file with --reference"
        )
    if not needed and reference is not None:
        raise OptionError(
            f"--reference applies to {of} {over_corpus()} only; omit it for {of} {kind}"
        )
    if reference is not None and not reference.is_file():
        raise OptionError(f"--reference {reference} is not a file; give a text file of prompts")


def reference_prompts(reference: Path | None, model: Model) -> dict[str, Any]:
    """Return the argument `reference` of a game; empty if no file is given."""
    if reference is None:
        return {}
    from interp.core.prompts import from_file

    return {"reference": from_file(reference, model)}
