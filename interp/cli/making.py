"""Commands made from public functions: options, types, defaults and help are those of a function.

    gates = command("interp.causal:learn_gates", also=GAME, files=("gates.json",), example="...")

    @command(also=GAME, example="...")
    def shapley(model: Model, task: Task, *, value: Literal["shapley", "banzhaf"] = "shapley"): ...

The function is read, not imported, until the command runs. What is special about a command is
stated beside its name: a `Spelling` for an option, a check before the models are loaded, a function
after the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import click

from interp.cli.inputs import INPUTS
from interp.cli.loading import (
    device_map_option,
    import_first,
    loading_options,
    remote_option,
    source_option,
    tp_plan_option,
)
from interp.cli.name_types import MODEL_NAME
from interp.cli.progress import Voice
from interp.cli.run import CommandDeclaration, Input, Run
from interp.cli.signature import Function, Parameter, read
from interp.cli.value_types import OUT_FOLDER
from interp.cli.vocabulary import Spelling, option_for
from interp.cli.written import OUT_FILE
from interp.cli.wrong_models import checked_source, checked_sources
from interp.core.errors import OptionError
from interp.report.printed import TEXTS

GAME = {
    "interp.causal.game.game:Game": (
        "kind", "reference", "players", "stack", "heads", "without", "seed", "max_tokens", "resume",
    )
}  # fmt: skip
"""Options of a game that a function passes on."""
_LOADING = {
    "remote": remote_option,
    "tp_plan": tp_plan_option,
    "source": source_option,
    "device_map": device_map_option,
}
_FORMS = (
    click.Option(["--json", "rows"], flag_value="json", help="Print only the rows, as JSON."),
    click.Option(["--csv", "rows"], flag_value="csv", help="Print only the rows, as CSV."),
)


class MadeCommand(click.Command):
    """Command made from a function, with its declaration."""

    def __init__(self, declared: CommandDeclaration, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.declared = declared


def command(
    target: str = "",
    *,
    over: Literal["models", "model", "all", "sources"] = "models",
    arguments: tuple[str, ...] = (),
    usual: str = "",
    also: Mapping[str, tuple[str, ...]] | None = None,
    omit: tuple[str, ...] = (),
    options: Mapping[str, Spelling] | None = None,
    inputs: Mapping[str, Input] | None = None,
    files: tuple[str, ...] = (),
    out: Literal["folder", "file", "own", "continued"] | tuple[str, ...] | None = "folder",
    loading: tuple[str, ...] = ("remote", "tp_plan"),
    help: str = "",
    example: str = "",
    text: str = "",
    check: Callable[[Run], None] | None = None,
    each: Callable[[Run, list[Any]], None] | None = None,
    after: Callable[[Run], int | None] | None = None,
) -> Any:
    """Make a command from a function.

    Args:
        target: the function as `module:name`; without it, `command` decorates a function of the
            command's file.
        over: "models": the function is called for each of several models, and a failure does not
            stop the others; "model": for one; "all": once for all, which are loaded; "sources":
            once, and the function loads them.
        arguments: metavars of "all" and "sources", such as A and B...
        usual: the model if none is given.
        also: functions whose parameters are passed on as keywords, with the names of these.
        omit: parameters that are no options.
        options: what is special about an option, by its parameter.
        inputs: parameters that are made from options, beside those of `INPUTS`.
        files: files to which `save` of the result writes, in the model's folder under --out.
        out: "folder": --out is a folder, and tables of scores of all models are written there;
            "file": --out is a file in the format of its suffix; "own": a file that the function
            writes; "continued": one that an earlier run began; endings: --out may be given once for
            each, and the function writes the files; None: nothing is written.
        loading: options of loading beside those of every command.
        help: sentences after the description of the function.
        example: a command line.
        text: function that formats the results, as `module:name`, in place of that of their type.
        check: refuses options that do not fit, before a model is loaded.
        each: called with the results of a model, when they are printed.
        after: called when all models are done; it may return an exit code.
    """
    made = (over, arguments, usual, files, out, text, check, each, after)
    rest = (also or {}, omit, options or {}, {**INPUTS, **(inputs or {})}, loading, help, example)
    if target:
        return _made(CommandDeclaration(target, *made), read(target), *rest)

    def decorate(function: Callable[..., Any]) -> click.Command:
        there = read(f"{function.__module__}:{function.__name__}")
        return _made(CommandDeclaration(function, *made), there, *rest)

    return decorate


def _made(
    declared: CommandDeclaration,
    function: Function,
    also: Mapping[str, tuple[str, ...]],
    omit: tuple[str, ...],
    special: Mapping[str, Spelling],
    inputs: Mapping[str, Input],
    loading: tuple[str, ...],
    help: str,
    example: str,
) -> click.Command:
    parameters = {k: v for k, v in function.parameters.items() if k not in omit}
    for passed, names in also.items():
        found = read(passed).parameters
        parameters |= {k: found[k] for k in names if k not in parameters and k not in omit}
    options: dict[str, click.Option] = {}

    def add(name: str, parameter: Parameter | None) -> bool:
        option = option_for(name, parameter, special.get(name, Spelling()))
        if option is not None:
            options.setdefault(name, option)
        return option is not None

    for name, parameter in parameters.items():
        if name in inputs:
            declared.inputs[name] = inputs[name]
            for word in inputs[name].words:
                add(word, parameters.get(word))
        elif add(name, parameter):
            declared.given.append(name)
    types = {TEXTS[kind] for kind in function.returns if kind in TEXTS}
    for formats in [declared.text] if declared.text else sorted(types):
        for name, parameter in read(formats).parameters.items():
            if name not in ("results", *omit) and add(name, parameter):
                declared.printing.add(name)
    params = [*_models(declared), *options.values(), *_outputs(declared)]

    def callback(**values: Any) -> None:
        imports = values.pop("imports")
        run = Run(
            declared, {k: values.pop(k) for k in options}, values.pop("loading"),
            Voice.of_command(quiet=values.pop("quiet")), values.pop("out", None),
            values.pop("rows", None), _given(declared, values),
        )  # fmt: skip
        run.check()
        import_first(imports)
        code = run.go()
        if code:
            click.get_current_context().exit(code)

    decorated: Any = callback
    for extra in loading:
        decorated = _LOADING[extra](decorated)
    decorated = loading_options(decorated)
    loaded = [*reversed(decorated.__dict__.pop("__click_params__"))]
    return MadeCommand(
        declared, function.name, callback=decorated, params=[*params, *loaded],
        help="\n\n".join(filter(None, (function.doc, help))),
        epilog=f"Example: {example}" if example else None,
    )  # fmt: skip


def _models(declared: CommandDeclaration) -> list[click.Argument]:
    many = declared.over == "models"
    if not declared.arguments:
        return [
            click.Argument(
                ["sources"], nargs=-1 if many else 1, required=not declared.usual, type=MODEL_NAME,
                metavar="MODEL..." if many else "MODEL",
                callback=checked_sources if many else _one_source,
            )
        ]  # fmt: skip
    checked = None if declared.over == "sources" else checked_sources
    return [
        click.Argument(
            [f"sources{i}"], nargs=-1 if name.endswith("...") else 1, required=True,
            type=MODEL_NAME, metavar=name,
            callback=checked if name.endswith("...") else checked and checked_source,
        )
        for i, name in enumerate(declared.arguments)
    ]  # fmt: skip


def _given(declared: CommandDeclaration, values: dict[str, Any]) -> tuple[str, ...]:
    """Take the models out of the values of a command."""
    if not declared.arguments:
        return values.pop("sources") or (declared.usual,)
    sources: list[str] = []
    for i in range(len(declared.arguments)):
        value = values.pop(f"sources{i}")
        sources += [value] if isinstance(value, str) else value
    return tuple(sources)


def _one_source(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str]:
    return (checked_source(context, parameter, value),)


def _outputs(declared: CommandDeclaration) -> list[click.Option]:
    quiet = click.Option(["-q", "--quiet"], is_flag=True, help="Do not print progress and notes.")
    if declared.out is None:
        return [quiet]
    if declared.out in ("file", "own", "continued"):
        continued = declared.out == "continued"
        kind: Any = click.Path(path_type=Path, dir_okay=False) if continued else OUT_FILE
        about = "Write the result: parquet, csv, json, toml or html, by suffix."
        file = click.Option(["-o", "--out"], type=kind, metavar="FILE", help=about)
        return [file, *_FORMS, quiet]
    if isinstance(declared.out, tuple):
        return [_by_ending(declared.out), quiet]
    about = "Folder for results"
    if declared.resumes:
        about += " and finished steps; the same command resumes an interrupted run"
    folder = click.Option(["-o", "--out"], type=OUT_FOLDER, metavar="DIR", help=f"{about}.")
    return [folder, *_FORMS, quiet]


def _by_ending(endings: tuple[str, ...]) -> click.Option:
    """Return the option --out of several files, each in the format of its ending."""

    def by_end(ctx: click.Context, parameter: click.Parameter, value: tuple[Path, ...]) -> Any:
        found = {path.suffix.lower(): path for path in value}
        for end, path in found.items():
            if end not in endings:
                raise OptionError(f"{path} has no known ending; known: {', '.join(endings)}")
        if len(found) < len(value):
            raise OptionError("--out names two files of one format; name one of each")
        return found

    return click.Option(
        ["-o", "--out"], multiple=True, type=OUT_FILE, callback=by_end, metavar="FILE",
        help="Write the result to this file, in the format of its ending: "
        f"{', '.join(endings)}. Repeatable.",
    )  # fmt: skip
