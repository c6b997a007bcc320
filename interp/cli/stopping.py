"""Early ends of a command: by signals and by a closed output; warnings shown as notes.

SIGTERM and SIGHUP are handled like Ctrl-C. Of a closed output, as in `interp score gpt2 | head -1`,
Python turns SIGPIPE into an error at the next write, and a command that runs many models would
mistake it for an error of the current model. Restoring SIGPIPE is not a solution: it would also end
the command when a server closes a connection. So the two standard streams are watched.
"""

from __future__ import annotations

import io
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

import click

from interp.cli.wrapping import say
from interp.core.errors import DamagedKept, KeptWarning

PIPE_CLOSED = 141  # 128 and the number of SIGPIPE, as shells report it


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


INTERRUPTED = 130
_SIGNALS = ("SIGTERM", "SIGHUP")  # sent by a scheduler, a container or a terminal that closes


@contextmanager
def stopping_signals() -> Iterator[None]:
    """Treat these signals like Ctrl-C in the block, and exit with 128 + their number.

    A signal that is ignored (nohup) or handled elsewhere is not changed.
    """
    stated: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        stated.append(number)
        raise KeyboardInterrupt

    taken = []
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
        taken = [n for n in numbers if signal.getsignal(n) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    except click.exceptions.Exit as end:
        if stated and end.exit_code == INTERRUPTED:
            raise click.exceptions.Exit(128 + stated[0]) from end
        raise
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def kept_warnings_as_notes() -> Iterator[None]:
    """Show warnings about stored results in the block as notes on stderr, each once."""
    shown: set[str] = set()

    def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
        if not issubclass(category, KeptWarning):
            before(message, category, *rest, **more)
            return
        context = click.get_current_context(silent=True)
        quiet = context is not None and context.params.get("quiet")
        if str(message) not in shown and (not quiet or issubclass(category, DamagedKept)):
            shown.add(str(message))
            say(f"interp: {message}", err=True)

    with warnings.catch_warnings():
        before, warnings.showwarning = warnings.showwarning, show
        warnings.simplefilter("always", KeptWarning)
        yield
