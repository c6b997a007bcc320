"""Early ends of a command: SIGTERM and SIGHUP handled like Ctrl-C, warnings shown as notes."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from interp.cli.wrapping import say
from interp.core.errors import DamagedKept, KeptWarning

if TYPE_CHECKING:
    pass

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
