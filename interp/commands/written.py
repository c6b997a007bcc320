"""Where commands put what they find of a model, and the line that says how it was made."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click


def model_folder(out: Path, name: str) -> Path:
    """The folder of a model among the results; signs that file systems dislike become dashes."""
    return out / (re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model")


def own_folder(
    out: Path, name: str, file: str, read: Callable[[Any], Sequence[str]], mine: Sequence[str]
) -> Path:
    """The folder of a model, or one beside it where that holds another result.

    Args:
        file: the JSON in the folder that says what is there; a damaged one may be replaced.
        read: what a result is of, from that JSON: the sha256 of the weights first.
        mine: the same of the result to be written.
    """
    plain = model_folder(out, name)
    try:
        there = read(json.loads((plain / file).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return plain
    if list(there) == list(mine):
        return plain
    return model_folder(out, ".".join([f"{name}-{mine[0][:8]}", *mine[1:]]))


def as_given() -> str:
    """The command as it was written, for a shell."""
    from interp.cli import COMMAND

    return shlex.join(["interp", *click.get_current_context().meta[COMMAND]])
