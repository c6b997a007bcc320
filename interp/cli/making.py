"""Commands made from public functions: options, types, defaults and help are those of a function.

    gates = command("interp.causal:learn_gates", over="models", also=GAME, example="...")

    @command(over="models", also=GAME, example="...")
    def shapley(model: Model, task: Task, *, value: Literal["shapley", "banzhaf"] = "shapley"): ...

The function is read, not imported, until the command runs. What is special about a command is
stated beside its name: a `Spelling` for an option, a check before the models are loaded, a function
after the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import click

import interp.report.presenters  # noqa: F401  registers the printed form of tables of heads
from interp.cli.context import COMMAND
from interp.cli.inputs import INPUTS
from interp.cli.last_time import LastTime
from interp.cli.loading import DEBUG_OPTION, FURTHER, LOADING, loading_of
from interp.cli.name_types import MODEL_NAME
from interp.cli.progress import Voice
from interp.cli.run import CommandDeclaration, Input, Run
from interp.cli.settings import Setting, WithSettings, set_option
from interp.cli.value_types import OUT_FOLDER
from interp.cli.vocabulary import Spelling, argument_for, option_for
from interp.cli.written import OUT_FILE, RESULT_FILE, OutFile
from interp.cli.wrong_models import checked_source, checked_sources
from interp.core.errors import OptionError
from interp.core.presenter import text_of_class
from interp.core.signature import Function, Parameter, read
from interp.model.loading import Loading, import_first

GAME = {
    "interp.causal.game.game:Game": (
        "kind",
        "reference",
        "players",
        "stack",
        "heads",
        "without",
        "seed",
        "max_tokens",
        "resume",
    )
}
"""Options of a game that a function passes on."""
_FORMS = (
    click.Option(["--json", "rows"], flag_value="json", help="Print only the rows, as JSON."),
    click.Option(["--csv", "rows"], flag_value="csv", help="Print only the rows, as CSV."),
)


class MadeCommand(WithSettings):
    """Command made from a function, with its declaration."""

    def __init__(self, declared: CommandDeclaration, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.declared = declared


def command(
    target: str = "",
    *,
    over: Literal["models", "model", "all", "sources", "nothing"] = "model",
    arguments: tuple[str, ...] = (),
    usual: str = "bundled:stories",
    also: Mapping[str, tuple[str, ...]] | None = None,
    omit: tuple[str, ...] = (),
    options: Mapping[str, Spelling] | None = None,
    inputs: Mapping[str, Input] | None = None,
    files: tuple[str, ...] = (),
    out: Literal["folder", "file", "own", "continued", "rows", "document", "tables"]
    | tuple[str, ...]
    | OutFile
    | None = ("folder"),
    loading: tuple[str, ...] = (),
    checked: bool = True,
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
        over: "model": the function is called for a model; "models": for each of several, and a
            failure does not stop the others; "all": once for all, which are loaded; "sources":
            once, and the function loads them; "nothing": once, without a model.
        arguments: metavars of "all" and "sources", such as A and B..., and parameters that
            are arguments, in small letters.
        usual: the model of "model" and "models" if none is given; "" if one has to be given.
        also: functions whose parameters are passed on as keywords, with the names of these.
        omit: parameters that are no options.
        options: what is special about an option, by its parameter.
        inputs: parameters that are made from options, beside those of `INPUTS`.
        files: files to which `save` of the result writes, in the model's folder under --out.
        out: "folder": --out is a folder, and tables of scores of all models are written there;
            "file": --out is a file in the format of its suffix; "own": a file that the function
            writes; "continued": one that an earlier run began; endings: --out may be given once for
            each, and the function writes the files; an `OutFile`: a page that the function writes;
            "document": --out is a folder, and the function writes the files and the JSON; "rows":
            is written, and rows can be printed alone; None: nothing is written.
        loading: options of loading beside those of every command.
        checked: the function gets models of which it is known that their heads are read correctly.
        help: sentences after the description of the function.
        example: a command line.
        text: function that formats the results, as `module:name`, in place of that of their type.
        check: refuses options that do not fit, before a model is loaded.
        each: called with the results of a model, when they are printed.
        after: called when all models are done; it may return an exit code.
    """
    declared = (over, arguments, usual, files, out, text, check, each, after, checked)
    rest = (also or {}, omit, options or {}, {**INPUTS, **(inputs or {})}, loading, help, example)
    if target:
        return _made(CommandDeclaration(target, *declared), read(target), *rest)

    def decorate(function: Callable[..., Any]) -> click.Command:
        there = read(f"{function.__module__}:{function.__name__}")
        return _made(CommandDeclaration(function, *declared), there, *rest)

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
    named = tuple(name for name in declared.arguments if name.islower())
    arguments = [argument_for(n, parameters.pop(n), special.get(n, Spelling())) for n in named]
    declared.given += named
    for passed, names in also.items():
        offered = read(passed).parameters
        parameters |= {k: offered[k] for k in names if k not in parameters and k not in omit}
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
    texts = {declared.text} if declared.text else set(map(text_of_class, function.returns))
    for formats in sorted(texts - {""}):
        for name, parameter in read(formats).parameters.items():
            if name not in ("results", *omit) and add(name, parameter):
                declared.printing.add(name)
    settings = [x for x in options.values() if isinstance(x, Setting)]
    spelled = [x for x in options.values() if not isinstance(x, Setting)]
    params = [
        *_models(declared),
        *arguments,
        *spelled,
        *([set_option()] * bool(settings)),
        *_outputs(declared),
    ]

    alone = declared.over == "nothing"

    def callback(**values: Any) -> None:
        voice = Voice.of_command(quiet=values.pop("quiet", False))
        lent = Loading() if alone else loading_of(values, voice)
        run = Run(
            declared,
            {k: values.pop(k) for k in (*named, *options)},
            lent,
            voice,
            values.pop("out", None),
            values.pop("rows", None),
            _given(declared, values),
        )
        context = click.get_current_context()
        last = LastTime(context.meta.get(COMMAND, ()))
        with nullcontext() if alone else voice.opening(run.announced() + last.told()):
            run.check()
            import_first(lent.imports, lent.session)
            code = run.go()
        if code:
            context.exit(code)
        if not alone:
            last.keep()

    loads = [DEBUG_OPTION] if alone else [*LOADING, *(FURTHER[name] for name in loading)]
    return MadeCommand(
        declared,
        function.name,
        callback=callback,
        params=[*params, *loads, *settings],
        help="\n\n".join(filter(None, (function.doc, help, _without_model(declared, help)))),
        epilog=f"Example: {example}" if example else None,
    )


def _models(declared: CommandDeclaration) -> list[click.Argument]:
    many = declared.over == "models"
    if declared.over == "nothing":
        return []
    if not (metavars := _metavars(declared)):
        return [
            click.Argument(
                ["sources"],
                nargs=-1 if many else 1,
                required=not declared.usual,
                type=MODEL_NAME,
                metavar=("[MODEL]" if declared.usual else "MODEL") + "..." * many,
                callback=checked_sources if many else _one_source,
            )
        ]
    checked = None if declared.over == "sources" else checked_sources
    return [
        click.Argument(
            [f"sources{i}"],
            nargs=-1 if name.endswith("...") else 1,
            required=name[0] != "[",
            type=MODEL_NAME,
            metavar=name,
            callback=checked if name.endswith("...") else checked and checked_source,
        )
        for i, name in enumerate(metavars)
    ]


def _without_model(declared: CommandDeclaration, help: str) -> str:
    """Return the sentence of a command's help about its usual model, unless the help has one."""
    if declared.over not in ("model", "models") or _metavars(declared) or not declared.usual:
        return ""
    return "" if declared.usual in help else f"Without a MODEL: {declared.usual}."


def _metavars(declared: CommandDeclaration) -> list[str]:
    """Return the arguments that are models; those in small letters are parameters."""
    return [name for name in declared.arguments if not name.islower()]


def _given(declared: CommandDeclaration, values: dict[str, Any]) -> tuple[str, ...]:
    """Take the models out of the values of a command."""
    if declared.over == "nothing":
        return ()
    if not (metavars := _metavars(declared)):
        return values.pop("sources")
    sources: list[str] = []
    for i in range(len(metavars)):
        value = values.pop(f"sources{i}")
        sources += [value] if isinstance(value, str) else value
    return tuple(sources)


def _one_source(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    return () if value is None else (checked_source(context, parameter, value),)


def _outputs(declared: CommandDeclaration) -> list[click.Option]:
    quiet = click.Option(["-q", "--quiet"], is_flag=True, help="Do not print progress and notes.")
    if isinstance(declared.out, OutFile):
        return [declared.out.option(), quiet]
    if declared.out == "rows":
        return [*_FORMS]
    if declared.out is None:
        return [quiet] * (declared.over != "nothing")
    if declared.out in ("file", "own", "continued"):
        continued: Any = click.Path(path_type=Path, dir_okay=False)
        kind = {"file": RESULT_FILE, "own": OUT_FILE}.get(str(declared.out), continued)
        about = "Write the result: parquet, csv, json, toml or html, by suffix."
        file = click.Option(["-o", "--out"], type=kind, metavar="FILE", help=about)
        return [file, *_FORMS, quiet]
    if isinstance(declared.out, tuple):
        return [_by_ending(declared.out), quiet]
    about = "Folder for results"
    if declared.resumes:
        about += " and finished steps; the same command resumes an interrupted run"
    folder = click.Option(["-o", "--out"], type=OUT_FOLDER, metavar="DIR", help=f"{about}.")
    return [folder, *(_FORMS[:1] if declared.out == "document" else _FORMS), quiet]


def _by_ending(endings: tuple[str, ...]) -> click.Option:
    """Return the option --out of several files, each in the format of its ending."""

    def by_end(ctx: click.Context, parameter: click.Parameter, value: tuple[Path, ...]) -> Any:
        by_ending = {path.suffix.lower(): path for path in value}
        for end, path in by_ending.items():
            if end not in endings:
                raise OptionError(f"{path} has no known ending; known: {', '.join(endings)}")
        if len(by_ending) < len(value):
            raise OptionError("--out names two files of one format; name one of each")
        return by_ending

    return click.Option(
        ["-o", "--out"],
        multiple=True,
        type=OUT_FILE,
        callback=by_end,
        metavar="FILE",
        help="Write the result to this file, in the format of its ending: "
        f"{', '.join(endings)}. Repeatable.",
    )
