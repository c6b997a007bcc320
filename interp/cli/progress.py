"""Progress bars and notes of a long command, all on stderr."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from interp.cli.context import DEBUG
from interp.cli.wrapping import plain_stream, say
from interp.core.tokens import visible

_log = logging.getLogger(__name__)
EVERY = 30.0  # seconds between two progress lines if bars cannot be drawn
AT_ONCE = 1.0  # seconds until a command says what it does, if it has not ended
SOON = 5.0  # seconds until the first of them, and until the length of a step is estimated
LONG = 60.0  # seconds of a command whose length is worth a line
PART = (
    50  # share of a step, as a divisor, from which its pace is known; its first units may be slow
)


_SIGNS = {
    "[": "[low, high] is a 95 % confidence interval",
    "±": "± precedes a standard error",
}


class Voice:
    """Notes and errors on stderr, with bars if stderr is a terminal."""

    def __init__(self, *, quiet: bool, debug: bool) -> None:
        self.quiet, self.debug = quiet, debug
        self.stopping = ""  # what Ctrl-C leaves, for the note on a long step
        if quiet:  # the kernels report their compilation themselves
            os.environ["INTERP_KERNELS_QUIET"] = "1"

    @classmethod
    def of_command(cls, *, quiet: bool) -> Voice:
        """Return the voice of the running command, which prints tracebacks with --debug."""
        return cls(quiet=quiet, debug=bool(click.get_current_context().meta.get(DEBUG)))

    def note(self, text: str) -> None:
        """Print a note that is not an error."""
        _log.info("%s", text)
        if not self.quiet:
            say(f"interp: {text}", err=True)

    def error(self, text: str, error: BaseException | None = None) -> None:
        """Print an error in one line, also when quiet; with its traceback when debugging."""
        say(f"interp: error: {text}", err=True)
        if self.debug and error is not None:
            import traceback

            traceback.print_exception(error)

    @contextmanager
    def opening(self, text: str) -> Iterator[None]:
        """Print what a command does, unless the block ends within `AT_ONCE` seconds."""
        first = threading.Timer(AT_ONCE, self.note, [text])
        first.daemon = True
        first.start()
        try:
            yield
        finally:
            first.cancel()

    @contextmanager
    def bars(self, model: str) -> Iterator[Callable[[str, int, int], None]]:
        """Show a bar per model and one for the current step; they disappear when it is done.

        A step with which the command passes `LONG` seconds says so once, by its pace after `SOON`
        seconds. If no bar can be drawn, as in a file, a line reports the progress after `SOON`
        seconds and then every `EVERY`.
        """
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(file=plain_stream(sys.stderr))
        columns = (
            # a model's name must not be read as markup
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        # Output printed while bars are shown must stay on its own stream.
        progress = Progress(
            *columns,
            console=console,
            transient=True,
            # FORCE_COLOR, set by Jupyter, is not a terminal, but rich treats a stream as one if
            # colours are forced; the characters that move the cursor would remain in a file
            disable=self.quiet or not (console.is_terminal and console.file.isatty()),
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with progress:
            tasks: dict[str, int] = {}
            counted: dict[str, list[tuple[float, int]]] = {}  # times, and units done by then
            announced = {model}  # metrics share passes: the first says nothing of the rest
            begun = time.monotonic()
            last_note = begun - EVERY + SOON

            def tell(what: str, done: int, total: int) -> None:
                nonlocal last_note
                now = time.monotonic()
                if not done or what not in counted:  # of a second count of this name too
                    counted[what] = []
                counts = counted[what]
                if not counts or what not in announced:
                    counts.append((now, done))
                start, before = counts[0]
                known = done - before >= max(2, total / PART) and now - start >= SOON
                if known and done < total and what not in announced:
                    announced.add(what)
                    left = _left(counts, total)
                    if now - begun + left > LONG and left > 1:
                        about = f"{left:.0f} s" if left < LONG else f"{left / 60:.0f} min"
                        what_next = f"{what.strip()} takes about {about} more{self.stopping}"
                        self.note(f"{model}: {what_next}")
                if progress.disable and time.monotonic() - last_note >= EVERY:
                    last_note = time.monotonic()
                    self.note(f"{model}: {what.strip()}, {done:,} of {total:,}")
                if what not in tasks:
                    label = f"{model}  metrics" if what == model else f"  {what}"
                    tasks[what] = progress.add_task(visible(label), total=total)
                over = done >= total and what != model
                progress.update(tasks[what], completed=done, total=total, visible=not over)  # type: ignore[arg-type]

            yield tell


def _left(counts: list[tuple[float, int]], total: int) -> float:
    """Return the seconds that the rest takes, by the pace of the later half of what is done.

    The first units compile, allocate and fill caches.
    """
    now, done = counts[-1]
    middle = (counts[0][1] + done) / 2
    since, before = [(at, n) for at, n in counts if n <= middle][-1]
    return (now - since) * (total - done) / (done - before)


def say_scores(text: str, voice: Voice, *, known: bool) -> bool:
    """Print what `scored_text` formats, and before it, once, what its signs mean."""
    lines = [meaning for sign, meaning in _SIGNS.items() if sign in text]
    if lines and not known:
        voice.note("; ".join(lines))
    say(text)
    return known or bool(lines)
