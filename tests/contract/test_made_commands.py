"""Commands made from functions: every option is of the vocabulary or of a function, and is read."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import click
import pytest

from interp.cli.folder import leaves
from interp.cli.inputs import INPUTS
from interp.cli.loading import Loading
from interp.cli.main import main
from interp.cli.making import MadeCommand, command
from interp.cli.signature import description, entries, read
from interp.cli.vocabulary import WORDS, Spelling, plain_help
from interp.core.errors import OptionError
from interp.report.printed import ROWS, TEXTS, call

MADE = {
    path.removeprefix("interp "): made
    for path, made in leaves(main, "interp")
    if isinstance(made, MadeCommand)
}
MOST_COMMANDS = 22
FORMS = sorted({*TEXTS.values(), *(x for x in ROWS.values() if ":" in x)})
ONE_THING = {
    "--file": "the file that a command reads",
    "--by": "the score by which heads are ordered",
    "--method": "the way, or the ways, in which a command answers",
    "--random": "the number of random draws of the null",
    "--task": "the task on which heads are measured",
    "--text": "the text that a command reads",
    "--per": "the unit of a row",
    "--n-heads": "the number of heads",
}
"""Spellings of several parameters, and the one thing that they mean."""


def test_there_are_few_commands_to_choose_from() -> None:
    assert len(main.commands) <= MOST_COMMANDS


@pytest.mark.parametrize("name", MADE)
def test_every_option_has_a_parameter_and_a_sentence(name: str) -> None:
    """A parameter of the function, a word of the vocabulary, or one that an input reads."""
    made = MADE[name].declared
    known = {*made.given, *WORDS, *(w for x in made.inputs.values() for w in x.words)}
    known |= {*Loading.__dataclass_fields__, "imports", "quiet", "out", "rows", "debug"}
    for option in MADE[name].params:
        if isinstance(option, click.Option) and not option.is_eager:
            assert option.name in known | made.printing, option.name
            assert option.help, option.name
            assert option.help.endswith((".", "auto")), option.help


def test_a_spelling_means_one_thing() -> None:
    parameters: dict[str, set[str]] = defaultdict(set)
    for made in MADE.values():
        for option in made.params:
            if isinstance(option, click.Option) and option.name not in ("rows", "out"):
                one = str(option.name).removesuffix("s")  # a method, or several
                parameters[max(option.opts, key=len)].add(one)
    several = {flag for flag, names in parameters.items() if len(names) > 1}
    assert several <= set(ONE_THING), {f: parameters[f] for f in several - set(ONE_THING)}


@pytest.mark.parametrize("target", FORMS)
def test_a_printed_form_exists(target: str) -> None:
    assert callable(call(target))
    assert read(target).parameters


def test_inputs_are_described_where_they_are_used() -> None:
    for made in MADE.values():
        assert set(made.declared.inputs) & set(INPUTS)


def test_help_needs_no_torch() -> None:
    code = (
        "import sys; from interp.cli.main import main; from interp.cli.folder import leaves;"
        "list(leaves(main, 'interp')); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_function_is_read_as_it_is_written(tmp_path: Path) -> None:
    found = read("interp.causal:learn_gates")  # by the stub, the import and the definition
    assert found.parameters["restarts"].default == 3
    assert found.parameters["seed"].help.startswith("seed of the halves")
    assert found.returns == ("LearnedGates",)
    assert read("interp.causal.steering.dose:steer").parameters["factors"].default[0] == -2.0
    with pytest.raises(OptionError, match="is not a function"):
        read("interp.causal:nothing")


def test_docstrings_become_help() -> None:
    doc = "Do it.\n\nMore.\n\nArgs:\n    a, b: two\n        things.\n    c: one.\n\nRaises:\n    x"
    assert description(doc) == "Do it.\n\nMore."
    assert entries(doc) == {"a": "two things.", "b": "two things.", "c": "one."}
    assert plain_help('with `method="causal"`; see `Gates.cost`.') == "With --method causal."
    assert plain_help("as for `interp score`") == "As for `interp score`."


def test_options_come_from_annotations() -> None:
    made = command(
        "interp.causal.gating.learn:learn_gates", options={"rate": Spelling(metavar="R")}
    )
    options = {p.name: p for p in made.params}
    assert list(options["cost"].type.choices) == ["count", "parameters", "flops", "cache"]
    assert options["n_random"].opts == ["--random"]
    assert options["rate"].metavar == "R"
    assert "progress" not in options
