"""The reference: a page for each folder whose names are public, and the help of every command."""

from __future__ import annotations

import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[1]
PACKAGES = (  # in the order in which they import one another, after the names of the whole package
    "interp",
    *(f"interp.{name}" for name in ("core", "planted", "model", "lens", "causal")),
    *(f"interp.{name}" for name in ("attribution", "heads", "heads.needle", "heads.outliers")),
    *(f"interp.{name}" for name in ("cache", "alignment", "text.chains", "text.context")),
    *(f"interp.{name}" for name in ("text.graphs", "vision", "vision.language", "safety")),
    *(f"interp.{name}" for name in ("syntax", "dictionaries", "probes", "policies")),
    *(f"interp.{name}" for name in ("circuits", "profiles")),
    *(f"interp.{name}" for name in ("testing", "report")),
    "interp_kernels",
)
LOADING = (
    "device",
    "dtype",
    "attention",
    "revision",
    "imports",
    "trust_remote_code",
    "allow_pickle",
    "debug",
)
"""Options that every command that loads a model has."""


def source(name: str) -> str:
    """Return the path of a folder's page."""
    return f"docs/reference/{name}.md"


def index() -> str:
    """Return the page that lists the folders."""
    lines = [f"- [`{name}`]({name}.md): {_first(import_module(name))}" for name in PACKAGES]
    return "\n".join(
        (
            "# Reference\n",
            "Public names are imported from `interp` or from one folder. The metrics and methods "
            "that are declared are on the [pages of methods](../methods.md).\n",
            *lines,
            "",
        )
    )


def page(name: str) -> str:
    """Return the page of a folder: each public name once, where it is imported from."""
    module = import_module(name)
    own, elsewhere = [], []
    whole = {} if name == "interp" else {id(x): n for n, x in _public("interp").items()}
    for public, value in _public(name).items():
        if id(value) in whole:
            elsewhere.append(f"[`{whole[id(value)]}`](interp.md#interp.{whole[id(value)]})")
        elif not hasattr(value, "__path__"):  # a folder has its own page
            own.append(public)
    parts = [f"# {name}", str(module.__doc__).strip().partition("\n\n")[0]]
    if elsewhere:
        parts.append(f"Imported from `interp`: {', '.join(elsewhere)}.")
    parts += [f"::: {name}.{public}" for public in own]
    if returned := _returned(name):
        parts += ["## Results that these functions return", *(f"::: {path}" for path in returned)]
    return "\n\n".join(parts) + "\n"


def _returned(name: str) -> list[str]:
    """Return paths of the results that functions of a folder return, and no page has so far."""
    before = {path for earlier in PACKAGES[: PACKAGES.index(name)] for path in _results(earlier)}
    return sorted(_results(name) - before)


@cache
def _results(name: str) -> frozenset[str]:
    """Return paths of the results that functions of a folder return, where they are not public."""
    from interp.core.result import Result
    from interp.core.result_rows import ResultRows

    public = {id(x) for folder in PACKAGES for x in _public(folder).values()}
    found = {}
    for function in filter(inspect.isfunction, _public(name).values()):
        inside = inspect.unwrap(function)
        names = re.findall(r"\w+", str(inside.__annotations__.get("return", "")))
        for value in (inside.__globals__.get(each) for each in names):
            if isinstance(value, type) and issubclass(value, Result) and value is not ResultRows:
                found[f"{value.__module__}.{value.__name__}"] = id(value)
    return frozenset(path for path, value in found.items() if value not in public)


def commands() -> str:
    """Return the page with the help of every command; options of loading stand once, at the end."""
    from interp.cli import loading
    from interp.cli.main import main

    parts = ["# Commands", _help(main, "interp")]
    for name, command in sorted(main.commands.items()):
        parts += [f"## interp {name}", _help(command, f"interp {name}")]
        for inner, member in sorted(getattr(command, "commands", {}).items()):
            if inner != getattr(command, "default", ""):  # the section of the family is its help
                path = f"interp {name} {inner}"
                parts += [f"### {path}", _help(member, path)]
    options = click.Command("interp ...", params=[*loading.LOADING])
    parts += ["## Options of commands that load a model", _help(options, "interp ...", hide=())]
    return "\n\n".join(parts) + "\n"


def _public(name: str) -> dict[str, Any]:
    module = import_module(name)
    names = [n for n in module.__all__ if not n.startswith("_")]
    return {n: getattr(module, n) for n in names}


def _help(command: Any, name: str, hide: tuple[str, ...] = LOADING) -> str:
    alone = command.commands[command.default] if getattr(command, "default", "") else command
    loads = any(param.name == "device" for param in alone.params)
    left_out = [p for p in alone.params if loads and p.name in hide]
    with click.Context(command, info_name=name, max_content_width=100, terminal_width=100) as ctx:
        for option in left_out:
            option.hidden = True
        try:
            return f"```text\n{command.get_help(ctx)}\n```"
        finally:
            for option in left_out:
                option.hidden = False


def _first(module: Any) -> str:
    return str(module.__doc__).strip().partition("\n")[0]
