"""Detection of file formats of version 0.1.0, which are no longer read."""

from __future__ import annotations

import os
import re
from pathlib import Path

from interp.core.errors import StoreError
from interp.core.files import listed

_STEPS = re.compile(r"[0-9a-f]{32}\.(ledger|steps|json)")
_ROWS = b'{"format": "interp faithfulness'


def refuse_steps(folder: Path) -> None:
    """Raise StoreError where a folder holds steps in the format of version 0.1.0."""
    # isdir, not Path.is_dir: a folder that may not be searched is reported where it is written to
    there = listed(folder) if os.path.isdir(folder) else []
    found = [path.name for path in there if _STEPS.fullmatch(path.name)]
    if found:
        raise StoreError(
            f"{folder} holds steps of interp 0.1.0 ({', '.join(found[:2])}), which this version"
            " cannot read; remove them, or choose another folder"
        )


def refuse_rows(path: Path) -> None:
    """Raise StoreError where a file holds faithfulness rows in the format of version 0.1.0."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_ROWS)) == _ROWS:
                raise StoreError(
                    f"{path} holds rows of interp 0.1.0, which this version cannot read; remove"
                    " it, or choose another folder"
                )
