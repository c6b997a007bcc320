"""Command `interp list methods`: attribution methods, read from the files that declare them."""

from __future__ import annotations

import click

from interp.cli.loading import debug_option
from interp.cli.name_types import ATTRIBUTION_NAME, note_left_out
from interp.cli.papers import paper_option, paper_text
from interp.core.entry import Entry
from interp.core.registry import ATTRIBUTION_METHODS

# Requirements of a method, in order of cost.
NEEDS = {
    "nothing": "Baselines that use no model data",
    "patterns": "From attention patterns (and values, where stated): no target, no gradient",
    "forward": "From forward passes",
    "gradients": "From gradients of the target",
}


@click.command(epilog="Example: interp list methods occlusion")
@click.argument("name", required=False, type=ATTRIBUTION_NAME)
@paper_option
@debug_option
def methods(name: str | None, paper: str | None) -> None:
    """List the attribution methods, or explain one.

    They attribute a model output to the tokens of the input: see `interp attribute`. NAME is a
    method, or a user-supplied .py file that declares one.
    """
    if paper is not None:
        click.echo(paper_text(paper, name))
    elif name is None:
        click.echo(method_listing())
        note_left_out(ATTRIBUTION_METHODS)
    else:
        click.echo(method_text(ATTRIBUTION_METHODS.explained(name)))


def method_listing() -> str:
    """Format every method by requirement: name, one sentence, options with their defaults."""
    width = max(map(len, ATTRIBUTION_METHODS))
    lines: list[str] = []
    for kind, title in NEEDS.items():
        rows = [e for e in ATTRIBUTION_METHODS.values() if e.about["needs"] == kind]
        if not rows:
            continue
        lines += [""] if lines else []
        lines.append(f"{title}:")
        lines += [f"  {e.name:<{width}}  {e.summary}{e.usage}" for e in rows]
    return "\n".join(
        [*lines, "", "`interp list methods NAME` explains one; give options as NAME:option=value."]
    )


def method_text(e: Entry) -> str:
    """Format one method in full: definition, options, unit, needs and source."""
    text, _, _ = e.doc.partition("Reference:")
    lines = [f"{e.name} (attribution)", "", text.strip(), ""]
    lines += [
        f"  {n}={default}" + (f" ({kind})" if kind else "")
        for n, (default, kind) in e.options.items()
    ]
    lines += [
        f"Unit: {e.unit or 'none'}",
        f"Needs: {e.about['needs']}",
        f"Source: {e.source or 'this project'}",
    ]
    return "\n".join([*lines, f"File: {e.where}"])
