"""The file of a run's finished steps: one for every identity, only ever added to.

A header line says whose steps these are. Then comes one record per step: its size, a checksum, a
line with its name, a line with its value, and the bytes of the arrays in that. No record can run
code. What was cut off or damaged is dropped with all that follows, when the file is opened again.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from interp.core.errors import StoreError
from interp.core.files import append, cannot_write, set_aside, warn_dropped

Key = tuple[tuple[str, int], ...]
"""The steps that a step is in, each with its number among those of its name, and itself."""

EVERY = 1.0  # seconds between two writes: what a kill costs at most, beside the step at work
_FORMAT = "interp steps 1"
_HEAD = struct.Struct("<QI")


class Store:
    """Values of finished steps, kept in a folder.

    Args:
        identity: all that moves the values; runs of another identity never get them.

    Raises:
        StoreError: the folder cannot be written.

    A file that is not what its name says is set aside with a warning (DamagedKept).
    """

    def __init__(self, folder: str | os.PathLike, identity: Mapping[str, Any]) -> None:
        text = json.dumps(identity, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        self.path = Path(folder) / f"{name}.steps"
        self._header = f'{json.dumps({"format": _FORMAT})[:-1]}, "of": {text}}}\n'.encode()
        self._places: dict[Key, tuple[int, int, int]] = {}  # start, size, checksum
        self._waiting: dict[Key, bytes] = {}
        self._written = time.monotonic()
        self._end = 0
        self._open()

    def __len__(self) -> int:
        return len(self._places) + len(self._waiting)

    def find(self, key: Key) -> tuple[bool, Any]:
        """Whether a step is finished, and its value.

        Raises:
            StoreError: it cannot be read back.
        """
        body = self._waiting.get(key)
        if body is None and key in self._places:
            at, size, checksum = self._places[key]
            try:
                with self.path.open("rb") as file:
                    file.seek(at)
                    body = file.read(size)
            except OSError as error:
                raise StoreError(_unread(self.path, error)) from error
            if len(body) != size or zlib.crc32(body) != checksum:
                raise StoreError(f"{self.path} was changed while it was in use; run again")
        return (False, None) if body is None else (True, _decoded(body))

    def add(self, key: Key, value: Any) -> None:
        """Keep a finished step; on disk after `EVERY` seconds, or `flush`.

        What was finished inside it and still waits is dropped: nobody will ask for it.
        """
        for inside in [k for k in self._waiting if k[: len(key)] == key]:
            del self._waiting[inside]
        try:
            self._waiting[key] = _encoded(key, value)
        except TypeError:
            return  # not plain data, such as an object of a method's own
        if time.monotonic() - self._written >= EVERY:
            self.flush()

    def flush(self) -> None:
        """Put what is finished on disk.

        Raises:
            StoreError: it cannot be written.
        """
        if not self._waiting:
            return
        heads = [_HEAD.pack(len(x), zlib.crc32(x)) for x in self._waiting.values()]
        records = [a + b for a, b in zip(heads, self._waiting.values(), strict=True)]
        at = self._append(b"".join(records))
        for key, record in zip(self._waiting, records, strict=True):
            size, checksum = _HEAD.unpack(record[: _HEAD.size])
            self._places[key] = at + _HEAD.size, size, checksum
            at += len(record)
        self._waiting = {}

    def _open(self) -> None:
        try:
            if not self.path.exists():
                self._append(self._header)
                return
            damaged = False
            with self.path.open("rb") as file:
                start = file.read(len(self._header))
                if self._header.startswith(start):  # all of it, or it was cut off
                    if len(start) == len(self._header):
                        self._read(file)
                else:
                    damaged = True
            if damaged:
                set_aside(self.path, "its first line is of something else")
                self._append(self._header)
                return
        except OSError as error:
            raise StoreError(_unread(self.path, error)) from error
        try:
            os.truncate(self.path, self._end)  # those steps are made again
        except OSError as error:
            raise StoreError(cannot_write(self.path, error)) from error
        if not self._end:
            self._append(self._header)

    def _read(self, file: BinaryIO) -> None:
        whole = os.fstat(file.fileno()).st_size
        while True:
            self._end = file.tell()
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            size, checksum = _HEAD.unpack(head)
            if size > whole - file.tell():
                return
            body = file.read(size)
            if zlib.crc32(body) != checksum:
                warn_dropped(self.path, f"{len(self)} finished steps")
                return
            self._places[_key(body)] = self._end + _HEAD.size, size, checksum

    def _append(self, content: bytes) -> int:
        at = append(self.path, content)
        self._written = time.monotonic()
        return at


def _unread(path: Path, error: OSError) -> str:
    return f"cannot read {path}: {error.strerror or error}"


def _key(body: bytes) -> Key:
    return tuple((name, number) for name, number in json.loads(body[: body.index(b"\n")]))


def _encoded(key: Key, value: Any) -> bytes:
    """Raises TypeError for what is neither plain data nor an array."""
    arrays: list[bytes] = []
    tree = json.dumps(_plain(value, arrays))
    return b"\n".join([json.dumps(key).encode(), tree.encode(), b"".join(arrays)])


def _decoded(body: bytes) -> Any:
    start = body.index(b"\n") + 1
    end = body.index(b"\n", start)
    return _Reader(body, end + 1).value(json.loads(body[start:end]))


def _plain(x: Any, arrays: list[bytes]) -> Any:
    """JSON for x; what JSON has no form for is a mapping of one entry that says what it is."""
    if isinstance(x, (np.ndarray, np.generic)):
        array = np.asarray(x)
        if array.dtype.kind not in "biufc":
            raise TypeError(f"no array of numbers: {array.dtype}")
        arrays.append(np.ascontiguousarray(array).tobytes())
        told = [array.dtype.str, *array.shape]
        return {"scalar" if isinstance(x, np.generic) else "array": told}
    if x is None or type(x) in (bool, int, float, str):
        return x
    if type(x) is list:
        return [_plain(y, arrays) for y in x]
    if type(x) is tuple:
        return {"tuple": [_plain(y, arrays) for y in x]}
    if type(x) is dict:
        return {"dict": [[_plain(k, arrays), _plain(v, arrays)] for k, v in x.items()]}
    raise TypeError(f"no plain data: {type(x).__name__}")


class _Reader:
    """Reads what `_plain` made, arrays from their bytes in the same order."""

    def __init__(self, body: bytes, at: int) -> None:
        self.body, self.at = body, at

    def value(self, told: Any) -> Any:
        """What `told` stands for."""
        if isinstance(told, list):
            return [self.value(x) for x in told]
        if not isinstance(told, dict):
            return told
        ((kind, inside),) = told.items()
        if kind == "tuple":
            return tuple(self.value(x) for x in inside)
        if kind == "dict":
            return {self.value(k): self.value(v) for k, v in inside}
        code, *shape = inside
        n = int(np.prod(shape, dtype=np.int64))
        found = np.frombuffer(self.body, np.dtype(code), n, self.at).reshape(shape).copy()
        self.at += n * np.dtype(code).itemsize
        return found[()] if kind == "scalar" else found
