"""The option --reference: the prompts over which a mean that replaces a head is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.model import Model


def reference_option(of: str = "--kind") -> Callable[..., Any]:
    """The option, for a command that chooses the replacement with the option `of`."""
    return click.option(
        "--reference",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help=f"Of {of} mean-dataset: the prompts, one per line, over which a head's output is "
        "averaged.",
    )


def require_reference(kind: str, reference: Path | None, of: str = "--kind") -> None:
    """Raise OptionError where the kind of ablation and the reference prompts do not fit."""
    if kind == "mean-dataset" and reference is None:
        raise OptionError(
            f"{of} mean-dataset takes the mean over prompts of yours: name them with --reference"
        )
    if kind != "mean-dataset" and reference is not None:
        raise OptionError(f"--reference is for {of} mean-dataset; {of} {kind} takes none")
    if reference is not None and not reference.is_file():
        raise OptionError(f"--reference {reference} is not a file; give a text file of prompts")


def reference_prompts(reference: Path | None, model: Model) -> dict[str, Any]:
    """The argument `reference` of a game; empty where no file is given."""
    if reference is None:
        return {}
    from interp.core.prompts import from_file

    return {"reference": from_file(reference, model)}
