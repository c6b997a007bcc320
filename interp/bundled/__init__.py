"""Small language models that come with the package: trained here, on text made here.

    names()            the models there are
    path("induction")  the folder of one, as `transformers` reads it

Neither imports torch. Each folder holds config, weights (safetensors), tokenizer, `training.json`
(how it was made and how its heads emerged) and a model card.
"""

from __future__ import annotations

from pathlib import Path

from interp.core.errors import UnknownName

HERE = Path(__file__).parent


def names() -> list[str]:
    """Names of the bundled models, the one for a first look first."""
    found = sorted(folder.parent.name for folder in HERE.glob("*/config.json"))
    return sorted(found, key=lambda name: name != "induction")


def path(name: str) -> Path:
    """Folder of the bundled model called `name`; raises `UnknownName` if there is none."""
    if name not in names():
        raise UnknownName("bundled model", name, names())
    return HERE / name
