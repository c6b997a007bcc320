"""Real models and texts in a folder beside the repository, which a clone does not have.

What is checked on them is checked on the bundled models too, so that a clone checks it as well.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
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


def imported(path: Path) -> ModuleType:
    """The file as a module, imported once, as `--import FILE` does."""
    if path.stem not in sys.modules:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[path.stem]
