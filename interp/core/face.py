"""Public face of a folder whose subfolders declare analyses, one per file.

`from interp.heads import induction` gives the analysis that `heads/detectors/induction.py`
declares, and everything in the folder's stub (`__init__.pyi`) as `lazy_loader` does.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import lazy_loader


def attach(
    package: str, file: str, declared: tuple[str, ...]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make the lazy `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: its name.
        file: its `__init__.py`, beside which the stub lies.
        declared: subfolders whose files each declare an analysis of the file's name.
    """
    listed, _, public = lazy_loader.attach_stub(package, file)
    folder = Path(file).parent

    def get(name: str) -> Any:
        if name in public:
            return listed(name)
        for inner in declared:
            if not name.startswith("_") and (folder / inner / f"{name}.py").is_file():
                return getattr(import_module(f"{package}.{inner}"), name)
        raise AttributeError(
            f"{package} has no public name {name!r}; dir({package}) lists those there are"
        )

    def names() -> list[str]:
        files = (path for inner in declared for path in (folder / inner).glob("[!_]*.py"))
        return sorted({*public, *(path.stem for path in files)})

    return get, names, public
