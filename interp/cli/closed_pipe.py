"""Clean exit of a command whose output is closed, as in `interp score gpt2 | head -1`.

Python turns SIGPIPE into an error at the next write, and a command that runs many models would
mistake it for an error of the current model. Restoring SIGPIPE is not a solution: it would also end
the command when a server closes a connection. So the two standard streams are watched.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

EXIT_CODE = 141  # 128 and the number of SIGPIPE, as shells report it


class ReaderGone(BaseException):
    """Closed stdout or stderr; not an `Exception`, since no model causes it."""


class _Watched(io.FileIO):
    """Stream that raises `ReaderGone` once when its reader is gone, and then ignores writes.

    Writes are ignored because blocks that the exception leaves may still write.
    """

    gone = False

    def write(self, b: io.ReadableBuffer, /) -> int:  # type: ignore[name-defined,override]
        """Write; raises ReaderGone."""
        if self.gone:
            return len(memoryview(b).cast("B"))
        try:
            return super().write(b)
        except BrokenPipeError:
            self.gone = True
            raise ReaderGone from None


@contextmanager
def watched_streams() -> Iterator[None]:
    """Watch stdout and stderr in the block, if they belong to the process."""
    before = sys.stdout, sys.stderr
    try:
        if before[0] is sys.__stdout__:
            sys.stdout = _watched(sys.stdout)
        if before[1] is sys.__stderr__:
            sys.stderr = _watched(sys.stderr)
        yield
        sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = before


def _watched(stream: TextIO) -> TextIO:
    """Return the watched stream, or the stream itself if it has no file descriptor."""
    try:
        stream.flush()
        raw = _Watched(stream.fileno(), "wb", closefd=False)
    except (OSError, ValueError, AttributeError):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.isatty() or stream is sys.__stderr__,
    )
