"""Option --reference: the prompts over which a replacement mean is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.value_types import PromptFile
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.model import Model


def reference_option(of: str = "--kind") -> Callable[..., Any]:
    """Return the option, for a command that chooses the replacement with the option `of`."""
    return click.option(
        "--reference",
        type=PromptFile(),
        metavar="FILE",
        help=f"For {of} mean-dataset: file of prompts, one per line, over which a head's output "
        f"is averaged.",
    )


def require_reference(kind: str, reference: Path | None, of: str = "--kind") -> None:
    """Raise OptionError if the kind of ablation and the reference prompts do not fit."""
    if kind == "mean-dataset" and reference is None:
        raise OptionError(
            f"{of} mean-dataset needs user-supplied prompts; name their file with --reference"
        )
    if kind != "mean-dataset" and reference is not None:
        raise OptionError(f"--reference applies to {of} mean-dataset only; omit it for {of} {kind}")
    if reference is not None and not reference.is_file():
        raise OptionError(f"--reference {reference} is not a file; give a text file of prompts")


def reference_prompts(reference: Path | None, model: Model) -> dict[str, Any]:
    """Return the argument `reference` of a game; empty if no file is given."""
    if reference is None:
        return {}
    from interp.core.prompts import from_file

    return {"reference": from_file(reference, model)}
