"""What a long command says while it works: bars and notes, all on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console


EVERY = 30.0  # seconds between two lines about progress, where bars cannot be drawn


class Voice:
    """Notes and errors on stderr, and bars where stderr is a terminal."""

    def __init__(self, *, quiet: bool, debug: bool) -> None:
        self.quiet, self.debug = quiet, debug

    def note(self, text: str) -> None:
        """Something to know that is no error."""
        if not self.quiet:
            click.echo(f"interp: {text}", err=True)

    def error(self, text: str, error: BaseException | None = None) -> None:
        """One line, also when quiet; with its traceback when debugging."""
        click.echo(f"interp: error: {text}", err=True)
        if self.debug and error is not None:
            import traceback

            traceback.print_exception(error)

    @contextmanager
    def bars(self, model: str) -> Iterator[Callable[[str, int, int], None]]:
        """A bar per model and one for the pass or metric at work; gone when the model is done.

        Where no bar can be drawn, as in a file, a line every `EVERY` seconds says how far it is.
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
            TextColumn("{task.description}", markup=False),  # a model's name is no markup
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        # What is printed while bars are shown must stay on its own stream.
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
            said = time.monotonic()

            def tell(what: str, done: int, total: int) -> None:
                nonlocal said
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
    """Whether a bar can be drawn over itself: FORCE_COLOR, which Jupyter sets, makes no terminal.

    rich takes a stream for a terminal if it is told to colour; in a notebook or a file the signs
    that move the cursor would stay behind.
    """
    return console.is_terminal and console.file.isatty()
