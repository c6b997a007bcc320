"""`interp methods`: how inputs can be attributed, read from the files that declare it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from interp.cli.loading import debug_option

if TYPE_CHECKING:
    from interp.core.registry import Entry

# What a method asks of a model, in order of cost.
NEEDS = {
    "nothing": "Baselines that read nothing",
    "patterns": "From attention patterns (and, where said, values): no target, no gradient",
    "forward": "From forward passes",
    "gradients": "From gradients of the target",
}


@click.command(epilog="Example: interp methods occlusion")
@click.argument("name", required=False)
@debug_option
def methods(name: str | None) -> None:
    """List the attribution methods, or explain one.

    They say which tokens of the input a number of the model comes from: see `interp attribute`.
    """
    from interp.core.errors import UnknownName
    from interp.core.registry import methods as known

    entries = known()
    if name is None:
        click.echo(listing(entries))
        return
    if name not in entries:
        raise UnknownName("attribution method", name, entries)
    click.echo(explained(entries[name]))


def needs(e: Entry) -> str:
    """What the file declares that the method needs."""
    found = re.search(r'needs="(\w+)"', e.path.read_text(encoding="utf-8"))
    return found[1] if found else ""


def listing(entries: dict[str, Entry]) -> str:
    """Every method by what it needs: name, one sentence, options with their defaults."""
    width = max(map(len, entries))
    lines: list[str] = []
    for kind, title in NEEDS.items():
        rows = [e for e in entries.values() if needs(e) == kind]
        if not rows:
            continue
        lines += [""] if lines else []
        lines.append(f"{title}:")
        for e in rows:
            options = ", ".join(f"{n}={default}" for n, (default, _) in e.options.items())
            lines.append(f"  {e.name:<{width}}  {e.summary}" + (f" [{options}]" if options else ""))
    return "\n".join(
        [*lines, "", "`interp methods NAME` explains one; give options as NAME:option=value."]
    )


def explained(e: Entry) -> str:
    """One method in full: what it computes, options, unit, needs and source."""
    text, _, _ = e.doc.partition("Reference:")
    lines = [f"{e.name} (attribution)", "", text.strip(), ""]
    lines += [
        f"  {n}={default}" + (f" ({kind})" if kind else "")
        for n, (default, kind) in e.options.items()
    ]
    lines += [
        f"Unit: {e.unit or 'none'}",
        f"Needs: {needs(e)}",
        f"Source: {e.source or 'this project'}",
    ]
    return "\n".join([*lines, f"File: {e.path.parent.name}/{e.path.name}"])
