"""Progress bars and notes of a long command, all on stderr."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from interp.cli.context import DEBUG
from interp.cli.wrapping import say

if TYPE_CHECKING:
    from rich.console import Console


EVERY = 30.0  # seconds between two progress lines if bars cannot be drawn
SOON = 5.0  # seconds until the first of them, and until the length of a step is estimated
LONG = 60.0  # seconds of a step whose length is worth a line


_SIGNS = {
    "[": "[low, high] is a 95 % confidence interval",
    "±": "± precedes a standard error",
}


class Voice:
    """Notes and errors on stderr, with bars if stderr is a terminal."""

    def __init__(self, *, quiet: bool, debug: bool) -> None:
        self.quiet, self.debug = quiet, debug
        if quiet:  # the kernels report their compilation themselves
            os.environ["INTERP_KERNELS_QUIET"] = "1"

    @classmethod
    def of_command(cls, *, quiet: bool) -> Voice:
        """Return the voice of the running command, which prints tracebacks with --debug."""
        return cls(quiet=quiet, debug=bool(click.get_current_context().meta.get(DEBUG)))

    def note(self, text: str) -> None:
        """Print a note that is not an error."""
        if not self.quiet:
            say(f"interp: {text}", err=True)

    def error(self, text: str, error: BaseException | None = None) -> None:
        """Print an error in one line, also when quiet; with its traceback when debugging."""
        say(f"interp: error: {text}", err=True)
        if self.debug and error is not None:
            import traceback

            traceback.print_exception(error)

    @contextmanager
    def bars(self, model: str) -> Iterator[Callable[[str, int, int], None]]:
        """Show a bar per model and one for the current step; they disappear when it is done.

        A step that will take more than `LONG` seconds says so once, after `SOON` seconds, by its
        pace. If no bar can be drawn, as in a file, a line reports the progress after `SOON` seconds
        and then every `EVERY`.
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

        console = Console(stderr=True)
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
            disable=self.quiet or not _moves(console),
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with progress:
            tasks: dict[str, int] = {}
            began: dict[str, tuple[float, int]] = {}  # the steps whose length is not yet known
            said = time.monotonic() - EVERY + SOON

            def tell(what: str, done: int, total: int) -> None:
                nonlocal said
                start, before = began.setdefault(what, (time.monotonic(), done))
                passed = time.monotonic() - start
                even = what != model  # metrics share passes: the first says nothing of the rest
                if even and SOON <= passed < math.inf and done > before:
                    began[what] = (-math.inf, done)
                    left = passed * (total - done) / (done - before)
                    if left > LONG:
                        self.note(f"{model}: {what.strip()} takes about {left / 60:.0f} min more")
                if progress.disable and time.monotonic() - said >= EVERY:
                    said = time.monotonic()
                    self.note(f"{model}: {what.strip()}, {done:,} of {total:,}")
                if what not in tasks:
                    label = f"{model}  metrics" if what == model else f"  {what}"
                    tasks[what] = progress.add_task(label, total=total)
                over = done >= total and what != model
                progress.update(tasks[what], completed=done, total=total, visible=not over)  # type: ignore[arg-type]

            yield tell


def _moves(console: Console) -> bool:
    """Return True if a bar can be redrawn; FORCE_COLOR, set by Jupyter, is not a terminal.

    rich treats a stream as a terminal if colours are forced; in a notebook or a file the control
    characters that move the cursor would remain.
    """
    return console.is_terminal and console.file.isatty()


def say_scores(text: str, voice: Voice, *, known: bool) -> bool:
    """Print what `scored_text` formats, and before it, once, what its signs mean.

    Args:
        text: the text.
        voice: prints the note on the signs.
        known: True if they were explained before.

    Returns:
        True if they are explained now.
    """
    told = [meaning for sign, meaning in _SIGNS.items() if sign in text]
    if told and not known:
        voice.note("; ".join(told))
    say(text)
    return known or bool(told)
