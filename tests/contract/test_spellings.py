"""The model comes first in every command, and a spelling of an option has one meaning."""

from __future__ import annotations

from collections import defaultdict

import click
import pytest

from interp.cli.folder import leaves
from interp.cli.main import main
from interp.cli.name_types import MODEL_NAME

COMMANDS = {path.removeprefix("interp "): command for path, command in leaves(main, "interp")}
# commands whose arguments are other than MODEL or MODEL...
ARGUMENTS = {
    "atlas": ["RESULTS_OR_MODEL..."],  # a page of results, or of a model
    "explore": ["FOLDER_OR_MODEL..."],
    "compare heads": ["A", "B..."],  # two models or more
    "compare match": ["A", "B"],
    "compare profiles": ["A", "B"],  # two models, or folders with profiles
    "head": ["MODEL", "HEAD"],  # one head of it
    "judge": ["MODEL", "HYPOTHESIS"],  # what is said of one head of it
    "compare checkpoints": ["RUN..."],  # models of one training run
    "prune verify": ["DIR"],  # a pruned checkpoint
    "completion": ["{bash|zsh|fish}"],
    "list methods": ["NAME"],
    "list metrics": ["NAME"],
    "list models": ["NAME"],
    "results query": ["SQL", "FOLDER"],
    "results merge": ["A B..."],  # folders
    **{f"results {x}": ["FOLDER"] for x in ("list", "show", "verify", "repair", "export")},
    "results headvis": ["FOLDER"],
}
# spellings that take values of different kinds, and why they still mean one thing
SEVERAL = {
    "--layer": "one layer; a recording also reads several, such as 0,3-5",
    "--position": "one position; others read several, their mean, or those of a rule",
}


def arguments(command: click.Command) -> list[str]:
    """Return the arguments of a command as its help shows them, needed or not."""
    found = [p for p in command.params if isinstance(p, click.Argument)]
    context = click.Context(command)
    return [p.make_metavar(context).replace("[", "").replace("]", "") for p in found]


def kind(option: click.Option) -> str:
    """Return what kind of value an option takes."""
    if option.is_flag:
        return "flag"
    own = type(option.type)
    if issubclass(own, click.types.IntParamType | click.types.FloatParamType):
        return "number"
    return (
        "path"
        if issubclass(own, click.Path) or own.__name__.endswith(("File", "Folder"))
        else "text"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_the_model_is_the_first_and_only_argument(name: str) -> None:
    shown = arguments(COMMANDS[name])
    if name in ARGUMENTS:
        assert shown == ARGUMENTS[name]
    else:
        assert shown in (["MODEL"], ["MODEL..."])
        [argument] = [p for p in COMMANDS[name].params if isinstance(p, click.Argument)]
        assert argument.type is MODEL_NAME, "so that it is completed"


def test_the_exceptions_are_commands() -> None:
    assert set(ARGUMENTS) <= set(COMMANDS)


def test_only_results_names_models_by_an_option() -> None:
    """There `--model` selects rows of stored results; nothing is loaded."""
    names = [n for n, c in COMMANDS.items() for p in c.params if "--model" in p.opts]
    assert {name.split()[0] for name in names} <= {"results"}


def test_a_spelling_takes_one_kind_of_value() -> None:
    kinds: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, command in COMMANDS.items():
        for option in command.params:
            if isinstance(option, click.Option):
                for flag in (*option.opts, *option.secondary_opts):
                    kinds[flag][kind(option)].append(name)
    several = {flag: dict(found) for flag, found in kinds.items() if len(found) > 1}
    assert set(several) == set(SEVERAL), several
