"""Where commands put what they find of a model, and the line that says how it was made."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click


def model_folder(out: Path, name: str) -> Path:
    """The folder of a model among the results; signs that file systems dislike become dashes."""
    return out / (re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model")


def as_given() -> str:
    """The command as it was written, for a shell."""
    from interp.cli import COMMAND

    return shlex.join(["interp", *click.get_current_context().meta[COMMAND]])
