"""`interp metrics`: what can be scored, read from the files that declare it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.loading import debug_option
from interp.core.calibration import chance_of

if TYPE_CHECKING:
    from interp.core.registry import Entry

# Which heads are shown first; --by asks for another order.
LISTED = {"high": "highest first", "low": "lowest first", "both": "both ends of the scale"}
# What the room of an analysis says about all in it.
ROOMS = {
    "heads": "Where heads attend, from attention patterns on prompts",
    "weights": "What heads compute, from the weights alone",
    "special": "Kinds of head that show in an experiment with prompts of its own",
}


@click.command(epilog="Example: interp metrics induction")
@click.argument("name", required=False)
@debug_option
def metrics(name: str | None) -> None:
    """List the metrics, or explain one.

    NAME is a metric, or a .py file of your own that declares one.
    """
    if name is None:
        click.echo(listing())
    else:
        click.echo(explained(_entry(name)))


def _entry(name: str) -> Entry:
    from interp.core.registry import entry, own_entry

    return own_entry(Path(name)) if name.endswith(".py") else entry(name)


def listing() -> str:
    """Every metric by room: name, one sentence, options with their defaults."""
    from interp.core.registry import catalogue

    entries = catalogue()
    width = max(map(len, entries))
    lines: list[str] = []
    for room in dict.fromkeys(e.room for e in entries.values()):
        lines += ["", f"{ROOMS.get(room, room)}:"] if lines else [f"{ROOMS.get(room, room)}:"]
        for e in entries.values():
            if e.room == room:
                options = ", ".join(f"{n}={default}" for n, (default, _) in e.options.items())
                lines.append(
                    f"  {e.name:<{width}}  {e.summary}" + (f" [{options}]" if options else "")
                )
    return "\n".join(
        [*lines, "", "`interp metrics NAME` explains one; give options as NAME:option=value."]
    )


def explained(e: Entry) -> str:
    """One metric in full: definition, options, unit, range, source and picture."""
    text, _, example = e.doc.partition("\n>>> ")
    call, _, drawn = example.partition("\n")
    text, _, source = text.partition("Reference:")
    text, _, options = text.partition("Options:")
    lines = [f"{e.name} ({e.kind})", "", text.strip(), ""]
    lines.append("Options:" if e.options else "Options: none")
    told = dict(re.findall(r"^ +(\w+): (.+)$", options, re.MULTILINE))
    for name, (default, kind) in e.options.items():
        lines.append(
            f"  {name}={default}"
            + (f" ({kind})" if kind else "")
            + f"  {told.get(name, '')}".rstrip()
        )
    lines += [f"Unit: {e.unit or 'none'}", f"Range: {span(e)}"]
    lines.append(f"Listed: {LISTED[e.end]}")
    if found := chance_of(e.name):
        median, low, high = found
        lines.append(
            f"Chance: heads of small random models score {median:g} (95 % of them {low:g} to"
            f" {high:g}); that of your model is the null of its scores"
        )
    lines.append(f"Source: {' '.join(source.split()) or 'this project'}")
    lines.append(f"File: {e.path.parent.name}/{e.path.name}")
    if drawn:
        lines += [
            "",
            f"Where an ideal head attends (rows: queries, columns: keys); {call}:",
            drawn.rstrip(),
        ]
    return "\n".join(lines)


def span(e: Entry) -> str:
    """The range of a score as text."""
    low, high = (None if end is None else f"{end:g}" for end in (e.low, e.high))
    if low is None and high is None:
        return "unbounded"
    return (
        f"{low} to {high}"
        if None not in (low, high)
        else (f"from {low}" if low else f"up to {high}")
    )
