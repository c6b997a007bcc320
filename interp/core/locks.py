"""Locks between processes that share a folder of results, released by the system when one dies.

    with locked(folder, ["a", "b"]) as waited:   # each name is one lock
        ...

A lock is one byte of the file `.lock` in the folder, locked with `fcntl`. Nothing is left to clean
up after a process is killed, also across machines on file systems that support these locks. Where
they are not supported (with a warning) and on Windows, processes may compute a result twice; files
are whole all the same, because each is written atomically.

The package filelock would leave one file per name (a folder of results has thousands) and take one
open descriptor for each lock that is held.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from interp.core import files
from interp.core.errors import KeptWarning, StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NAME = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_open: dict[str, list[int]] = {}  # file -> descriptor, number of uses: closing one frees all locks


@contextlib.contextmanager
def locked(
    folder: Path, names: Iterable[str], *, waiting: Callable[[], None] = lambda: None
) -> Iterator[bool]:
    """Hold the locks of these names in the block, and yield whether another process held one."""
    if fcntl is None:
        yield False
        return
    offsets = sorted({_offset(name) for name in names})
    with _file(folder / NAME) as handle:
        taken, waited = [], False
        try:
            for offset in offsets:
                try:
                    waited = _take(handle, offset, waiting, waited)
                except OSError as error:
                    if error.errno not in _UNSUPPORTED:
                        raise StoreError(files.cannot_write(folder / NAME, error)) from error
                    text = f"{folder} is on a file system without locks"
                    text += "; two commands at once may compute the same result"
                    warnings.warn(text, KeptWarning, stacklevel=3)
                    break
                taken.append(offset)
            yield waited
        finally:
            for offset in taken:
                fcntl.lockf(handle, fcntl.LOCK_UN, 1, offset)


def _take(handle: int, offset: int, waiting: Callable[[], None], waited: bool) -> bool:
    """Lock a byte; return whether this call or an earlier one had to wait."""
    assert fcntl is not None
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
    else:
        return waited
    if not waited:
        waiting()
    fcntl.lockf(handle, fcntl.LOCK_EX, 1, offset)
    return True


@contextlib.contextmanager
def _file(path: Path) -> Iterator[int]:
    known = os.path.realpath(path)
    if known not in _open:
        try:
            _open[known] = [os.open(path, os.O_RDWR | os.O_CREAT, 0o666), 0]
        except OSError as error:
            raise StoreError(files.cannot_write(path, error)) from error
    _open[known][1] += 1
    try:
        yield _open[known][0]
    finally:
        _open[known][1] -= 1
        if not _open[known][1]:
            os.close(_open.pop(known)[0])


def _offset(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")
