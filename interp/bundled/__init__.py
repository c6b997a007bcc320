"""Small language models in the package, trained on synthetic text.

    names()            names of the models
    path("induction")  folder of one, as `transformers` reads it

Neither imports torch. Each folder holds config, weights (safetensors), tokenizer, `training.json`
(the training run and how the heads emerged) and a model card.
"""

from __future__ import annotations

from pathlib import Path

from interp.core.errors import UnknownName

HERE = Path(__file__).parent


def names() -> list[str]:
    """Return the names of the bundled models, the best one to start with first."""
    found = sorted(folder.parent.name for folder in HERE.glob("*/config.json"))
    return sorted(found, key=lambda name: name != "induction")


def path(name: str) -> Path:
    """Return the folder of the bundled model called `name`; raises `UnknownName` if unknown."""
    if name not in names():
        raise UnknownName("bundled model", name, names())
    return HERE / name
