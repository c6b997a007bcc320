"""Files of the output folder that an agent may read: pages, profiles, verdicts and circuits.

A name is only looked up among the files that are listed, so that no path leads out of the folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from interp.core import files
from interp.core.errors import OptionError, StoreError

ADDRESS = "interp://results/"
TYPES = {
    ".html": "text/html",
    ".json": "application/json",
    ".csv": "text/csv",
    ".toml": "application/toml",
}
"""Media types by suffix; other files are not listed."""
WITHHELD = frozenset({"kept", "ledgers"})
"""Folders of finished steps, and of the ledgers that a tool reads."""
MOST_FILES = 500
LARGEST_FILE = 8_000_000  # bytes


class ResultFiles:
    """Files of an output folder and of the folders of models in it, without links.

    Args:
        out: the output folder.
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    def listed(self) -> dict[str, Path]:
        """Return the files by their addresses, the latest first."""
        found: list[tuple[float, str, Path]] = []
        for folder in [self.out, *self._folders()]:
            for entry in _entries(folder):
                suffix = Path(entry.name).suffix.lower()
                if suffix in TYPES and entry.is_file(follow_symlinks=False):
                    path = Path(entry.path)
                    changed = entry.stat(follow_symlinks=False).st_mtime
                    found.append((changed, self.address(path), path))
        return {name: path for _, name, path in sorted(found, reverse=True)[:MOST_FILES]}

    def address(self, path: Path) -> str:
        """Return the address of a file below the folder."""
        name = "/".join(path.relative_to(self.out).parts)
        return ADDRESS + quote(name.encode("utf-8", "surrogateescape"))

    def read(self, address: str) -> tuple[str, str]:
        """Return the text of a listed file, and its media type."""
        path = self.listed().get(address)
        if path is None:
            raise OptionError(
                f"there is no result {address[:200]!r}; list the resources for those there are"
            )
        if (size := path.stat().st_size) > LARGEST_FILE:
            raise OptionError(
                f"{path.name} has {size:,} bytes, above {LARGEST_FILE:,}; open it on the machine"
                " of the server"
            )
        try:
            text = files.read_bytes(path).decode()
        except UnicodeDecodeError as error:
            raise StoreError(f"{path.name} is not text in UTF-8; it cannot be read here") from error
        return text, TYPES[path.suffix.lower()]

    def _folders(self) -> list[Path]:
        return [
            Path(entry.path)
            for entry in _entries(self.out)
            if entry.is_dir(follow_symlinks=False) and entry.name not in WITHHELD
        ]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what a folder holds, but hidden files; nothing of one that is not there yet."""
    try:
        with os.scandir(folder) as every:
            return [entry for entry in every if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(files.cannot_read(folder, error)) from error
