"""Classes of checkpoints that were imported but not registered with the Auto classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interp.core.documents import parse_json


def config_of_imported(folder: str) -> Any:
    """Read the config of a folder whose class was imported; None if it was not."""
    raw = parse_json((Path(folder) / "config.json").read_text())
    for cls in imported_classes():
        if cls.__name__ in (raw.get("architectures") or []):
            return cls.config_class.from_pretrained(folder)
    return None


def imported_classes() -> list[type]:
    """Return the subclasses of PreTrainedModel in all imported modules, at any depth."""
    from transformers import PreTrainedModel

    classes, todo = [], [PreTrainedModel]
    while todo:
        for cls in todo.pop().__subclasses__():
            classes.append(cls)
            todo.append(cls)
    return classes
