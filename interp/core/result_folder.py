"""Folders of results: one per model, or one beside it for other settings or weights."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interp.core.documents import parse_json
from interp.core.files import write_atomically

_ABOUT = "about.json"


def model_folder(out: Path, name: str) -> Path:
    """Return the folder of a model among the results, with unsafe characters as dashes."""
    return out / (re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model")


def kept_folder(out: Path) -> Path:
    """Return the folder of the run store among the results."""
    return out / "kept"


def own_folder(
    out: Path, name: str, file: str, read: Callable[[Any], Sequence[str]], mine: Sequence[str]
) -> Path:
    """Return the folder of a model, or one beside it if that contains another result."""
    plain = model_folder(out, name)
    try:
        there = read(parse_json((plain / file).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return plain
    if list(there) == list(mine):
        return plain
    return model_folder(out, ".".join([f"{name}-{mine[0][:8]}", *mine[1:]]))


def folder_for(out: Path, name: str, file: str, about: Mapping[str, Any]) -> Path:
    """Return the folder of a model, or one beside it if its file has other settings."""
    about = json.loads(json.dumps(about, default=str))
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
    for folder in (model_folder(out, name), model_folder(out, f"{name}-{digest}")):
        there = _about(folder)
        if there.get(file) == about or not (folder / file).exists():
            break
    write_atomically(
        folder / _ABOUT, json.dumps(there | {file: about}, indent=1, ensure_ascii=False).encode()
    )
    return folder


def _about(folder: Path) -> dict[str, Any]:
    try:
        document = parse_json((folder / _ABOUT).read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
