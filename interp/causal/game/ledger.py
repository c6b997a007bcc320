"""Finished coalitions in a file, so that an interrupted run goes on where it was.

One file per game: a header line that says which, then one record per coalition, appended when it
is done. A record is 16 bytes that name the gates, the value of every prompt, and a checksum; a
record that was cut off is dropped when the file is opened again.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import StoreError
from interp.core.files import append, cannot_write, set_aside, warn_dropped
from interp.model.identity import identity_of
from interp.model.source_code import code_of

if TYPE_CHECKING:
    from interp.causal.game.interface import PlayedGame

_FORMAT = "interp ledger 1"
_NAME = 16


class Ledger:
    """Values of one game's coalitions, kept in a folder.

    Raises:
        StoreError: the folder cannot be written.

    A file that is no ledger is set aside with a warning (DamagedKept).
    """

    def __init__(self, folder: str | os.PathLike, game: PlayedGame) -> None:
        self.n_prompts = len(game.task)
        identity = game.identity()
        text = json.dumps(identity, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        self.path = Path(folder) / f"{digest}.ledger"
        self._header = json.dumps({"format": _FORMAT, "game": identity}).encode() + b"\n"
        self._size = _NAME + 8 * self.n_prompts + 4
        self._values: dict[bytes, bytes] = {}
        self._open()

    def __len__(self) -> int:
        return len(self._values)

    def find(
        self, gates: Float[Tensor, "coalition player"]
    ) -> tuple[Bool[Tensor, " coalition"], Float[Tensor, "coalition prompt"]]:
        """Which of these coalitions are known, and their values; NaN where they are not."""
        values = torch.full((len(gates), self.n_prompts), torch.nan, dtype=torch.double)
        known = torch.zeros(len(gates), dtype=torch.bool)
        for row, name in enumerate(_names(gates)):
            content = self._values.get(name)
            if content is not None:
                values[row] = torch.frombuffer(bytearray(content), dtype=torch.double)
                known[row] = True
        return known, values

    def add(
        self, gates: Float[Tensor, "coalition player"], values: Float[Tensor, "coalition prompt"]
    ) -> None:
        """Keep the values of these coalitions; on disk when this returns.

        Raises:
            StoreError: they cannot be written.
        """
        records = []
        rows = values.double().cpu().contiguous().numpy()
        for name, row in zip(_names(gates), rows, strict=True):
            content = row.tobytes()
            if name not in self._values:
                self._values[name] = content
                record = name + content
                records.append(record + struct.pack("<I", zlib.crc32(record)))
        if records:
            append(self.path, b"".join(records))

    def _open(self) -> None:
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror or error}") from error
        if len(content) < len(self._header) and self._header.startswith(content):
            self._cut(0)  # where its first line was cut off
            append(self.path, self._header)
            return
        if not content.startswith(self._header):
            set_aside(self.path, "its first line is of something else")
            append(self.path, self._header)
            return
        end = len(self._header)
        while end + self._size <= len(content):
            record = content[end : end + self._size]
            if struct.unpack("<I", record[-4:])[0] != zlib.crc32(record[:-4]):
                warn_dropped(self.path, f"{len(self)} finished coalitions")
                break
            self._values[record[:_NAME]] = record[_NAME:-4]
            end += self._size
        if end < len(content):  # cut off, or damaged from here on: those coalitions run again
            self._cut(end)

    def _cut(self, end: int) -> None:
        try:
            if self.path.exists():
                os.truncate(self.path, end)
        except OSError as error:
            raise StoreError(cannot_write(self.path, error)) from error


def identity(game: PlayedGame) -> dict[str, object]:
    """All that moves a game's values: another game never gets these."""
    members = {site.name: index.tolist() for site, index in game.players.member.items()}
    about = {k: v for k, v in game.about().items() if k != "notes"}
    read = game.task.read_rows or game.task.read_prompt
    return about | {
        "model": identity_of(game.model),
        "reading": code_of([read]),
        "members": members,
    }


def _names(gates: Tensor) -> list[bytes]:
    rows = gates.detach().double().cpu().contiguous().numpy()
    return [hashlib.blake2b(row.tobytes(), digest_size=_NAME).digest() for row in rows]
