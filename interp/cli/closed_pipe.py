"""The end of a command whose output nobody reads any more, as of `interp score gpt2 | head -1`.

Python turns SIGPIPE into an error wherever the next write happens, and a command that runs many
models would take it for an error of the model it is at. SIGPIPE itself is no way out: it would also
end the command when a server closes a connection. So the two standard streams are watched.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

EXIT_CODE = 141  # 128 and the number of SIGPIPE, as shells report it


class ReaderGone(BaseException):
    """Nobody reads stdout or stderr; no `Exception`, since no model is to blame for it."""


class _Watched(io.FileIO):
    """A stream that raises `ReaderGone` once when its reader is gone, and is silent from then on.

    Silent, because blocks that are left by the exception may still have something to write.
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
    """Watch stdout and stderr in the block, where they are the process's own.

    Raises:
        ReaderGone: something was written to a pipe that is closed at its other end.
    """
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
    """The same stream; as it is where it leads to no file of the system."""
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
