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
from interp.cli.loading import FURTHER, LOADING
from interp.cli.main import main
from interp.cli.making import MadeCommand, command
from interp.cli.settings import Setting
from interp.cli.vocabulary import WORDS, Spelling, plain_help
from interp.core.errors import OptionError
from interp.core.signature import description, entries, read
from interp.model.loading import Loading

MADE = {
    path.removeprefix("interp "): made
    for path, made in leaves(main, "interp")
    if isinstance(made, MadeCommand)
}
MOST_COMMANDS = 22
MOST_SPELLINGS = 79
ONE_THING = {
    "--against": "what a result is compared with",
    "--file": "the file that a command reads",
    "--keep": "the number of heads or nodes that stay",
    "--kind": "what stands in place of what is removed",
    "--load": "the earlier result that is read in place of a new one",
    "--position": "the positions that are read",
    "--random": "the number of random draws of the null",
    "--site": "the activations that are read",
    "--text": "the text that a command reads",
    "--with": "a further model that takes part",
}
"""Spellings of several parameters, and the one thing that they mean."""
OF_ALL = {"--out", "--json", "--csv", "--quiet", "--overwrite", "--set", "--list"}
"""Spellings that the machinery adds, beside the vocabulary and the options of loading."""


def options() -> list[tuple[str, click.Option]]:
    """Every option of every command under its longest spelling; settings are none."""
    return [
        (max(option.opts, key=len), option)
        for made in MADE.values()
        for option in made.params
        if isinstance(option, click.Option) and not isinstance(option, Setting)
    ]


def test_every_command_is_made_from_a_function() -> None:
    assert [
        path for path, made in leaves(main, "interp") if not isinstance(made, MadeCommand)
    ] == []


def test_there_are_few_spellings_to_learn() -> None:
    assert len({flag for flag, _ in options() if flag.startswith("--")}) <= MOST_SPELLINGS


def test_every_option_is_of_the_vocabulary() -> None:
    """A command cannot add a spelling: what is not in the vocabulary is a setting."""
    spelled = {
        max(word.spelling or (f"--{name.replace('_', '-')}",), key=len)
        for name, word in WORDS.items()
    }
    loading = {max(option.opts, key=len) for option in (*LOADING, *FURTHER.values())}
    assert {flag for flag, _ in options()} <= spelled | loading | OF_ALL


@pytest.mark.parametrize("name", MADE)
def test_every_option_has_a_parameter_and_a_sentence(name: str) -> None:
    """A parameter of the function, a word of the vocabulary, or one that an input reads."""
    made = MADE[name].declared
    known = {*made.given, *WORDS, *(w for x in made.inputs.values() for w in x.words)}
    known |= {*Loading.__dataclass_fields__, "quiet", "out", "rows", "debug"}
    for option in MADE[name].params:
        if isinstance(option, click.Option) and not option.is_eager:
            assert option.name in known | made.printing, option.name
            assert option.help, option.name
            assert option.help.endswith((".", "auto")), option.help


def test_a_spelling_means_one_thing() -> None:
    parameters: dict[str, set[str]] = defaultdict(set)
    for flag, option in options():
        if option.name not in ("rows", "out"):
            parameters[flag].add(str(option.name).removesuffix("s"))  # a method, or several
    several = {flag for flag, names in parameters.items() if len(names) > 1}
    assert several == set(ONE_THING), {f: parameters[f] for f in several ^ set(ONE_THING)}


def test_settings_are_given_listed_and_refused_by_name(run) -> None:
    text = run("importance", "gates", "--help").stdout
    assert "Settings (--set):\n" in text
    assert "steps=N" in text
    given = ("importance", "gates", "planted:induction")
    for wrong, told in (
        (
            ("--set", "stepz=3"),
            "unknown setting of `interp importance gates` 'stepz'; did",
        ),
        (
            ("--steps", "3"),
            "--steps is a setting of `interp importance gates`, not an option",
        ),
        (("--set", "seed=3"), "seed is an option, not a setting; give --seed"),
        (("--set", "steps=many"), "Invalid value for '--set steps'"),
        (("--set", "steps=0"), "0 is not in the range x>=1"),
    ):
        done = run(*given, *wrong)
        assert done.exit_code == 2, wrong
        assert told in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("name", "given", "want"),
    [
        ("steer", ("--heads", "L1H0", "--set", "factors=1,2e-1"), {"factors": [1.0, 0.2]}),
        ("importance ablate", ("--set", "all_but_one"), {"all_but_one": True}),
        (
            "study trees",
            ("--set", "controls=false", "--set", "on_error=skip"),
            {"controls": False, "on_error": "skip"},
        ),
        (
            "importance gates",
            ("--set", "steps=3", "--set", "steps=4"),
            {"steps": 4, "cost": "count"},
        ),
        (
            "circuit find",
            ("--set", "maps=mlp", "--set", "maps=stream"),
            {"maps": ("mlp", "stream")},
        ),
        ("texts graph", ("--set", "threshold=a=b,c"), {"threshold": "a=b,c"}),
    ],
)
def test_a_setting_is_read_like_an_option(
    name: str, given: tuple[str, ...], want: dict[str, object]
) -> None:
    found = MADE[name].make_context(name, ["planted:induction", *given]).params
    assert {k: found[k] for k in want} == want


def test_inputs_are_described_where_they_are_used() -> None:
    for made in MADE.values():
        if made.declared.over != "nothing":
            assert set(made.declared.inputs) & set(INPUTS), made.name


def test_help_needs_no_torch() -> None:
    code = (
        "import sys; from interp.cli.main import main; from interp.cli.folder import leaves;"
        "list(leaves(main, 'interp')); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_function_is_read_as_it_is_written(tmp_path: Path) -> None:
    found = read("interp.causal:learn_gates")  # by the stub, the import and the definition
    assert found.parameters["n_restarts"].default == 3
    assert found.parameters["seed"].help.startswith("seed of the halves")
    assert found.returns == ("interp.causal.gating.result:LearnedGates",)
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
