"""Real models and texts in a folder beside the repository, which a clone does not have.

What is checked on them is checked on the bundled models too, so that a clone checks it as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "shared"
STORIES = FOLDER / "models" / "tinystories-instruct-3m"
TREEBANK = FOLDER / "data" / "ud" / "en_ewt-ud-dev.conllu"


def needs(path: Path) -> pytest.MarkDecorator:
    """Skip where a file or folder is missing, with its place as the reason."""
    where = path.relative_to(FOLDER.parent)
    return pytest.mark.skipif(not path.exists(), reason=f"{where} is not beside the repository")


def real(name: str, *values: Any) -> Any:
    """Parameters of a test that needs a real model: its folder, then the other values."""
    folder = FOLDER / "models" / name
    return pytest.param(str(folder), *values, id=name, marks=needs(folder))
