"""Every option of these commands changes what the command prints or writes, or a reason is stated.

A command runs once as it is and once per option with another value, which follows from the option's
type or is given in `OTHER`. A new option of one of the commands is tested without an edit, unless
its value cannot be guessed. Options of one output file must write it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from sampled import sampled

from interp.cli.main import main
from interp.cli.settings import Setting
from interp.cli.written import OutFile

TEXT = "the red dog and the red"
TEXTS = "on Monday Anna went to the field.\nthe red dog and the blue cat ran to the red barn.\n" * 3
BASE = {
    "compare match": ["bundled:induction", "{earlier}", "--random", "9"],
    "importance verify": [
        "bundled:induction",
        "-m",
        "induction",
        "--top",
        "2",
        "--random",
        "4",
        "-n",
        "4",
    ],
    "importance ablate": ["bundled:induction", "-n", "4"],
    "attribute lens": ["bundled:induction", "--text", TEXT],
    "attribute output": ["bundled:induction", "--text", TEXT],
    "attribute flow": ["bundled:induction", "--text", TEXT],
    "circuit graph": ["bundled:induction"],
    "circuit loadings": ["bundled:induction", "--heads", "L1H0"],
    "list methods": [],
    "list metrics": [],
    "list models": [],
    "circuit path": ["bundled:induction", "--route", "0.1>logits", "-n", "12"],
    "circuit shares": ["bundled:induction", "--heads", "L1H0", "-n", "4"],
    "results list": ["{results}"],
    "results show": ["{results}"],
    "steer": ["bundled:induction", "--heads", "L1H0", "-n", "4", "--random", "2"],
}
SLOW = (
    "compare match",
    "importance verify",
    "importance ablate",
    "steer",
    "circuit path",
    "circuit shares",
)
# what stands in both runs, and what only in the second
OTHER: dict[tuple[str, str], tuple[list[str], list[str]]] = {
    ("compare match", "--random"): ([], ["--random", "0"]),
    ("compare match", "--top"): ([], ["--top", "3"]),
    ("compare match", "--file"): ([], ["--file", "{texts}"]),
    ("importance verify", "--metric"): ([], ["-m", "previous_token"]),
    ("importance verify", "--random"): ([], ["--random", "7"]),
    ("importance verify", "--top"): ([], ["--top", "3"]),
    ("attribute output", "--text"): ([], ["--text", "the blue cat and the red"]),
    ("attribute flow", "--text"): ([], ["--text", "the blue cat and the red"]),
    ("circuit graph", "--text"): ([], ["--text", "the blue cat and the red"]),
    ("circuit loadings", "--text"): ([], ["--text", "the blue cat and the red"]),
    ("circuit shares", "--text"): ([], ["--text", "the blue cat and the red"]),
    ("circuit loadings", "--heads"): ([], ["--heads", "L1H1"]),
    ("circuit shares", "--heads"): ([], ["--heads", "L1H1"]),
    ("attribute lens", "--text"): ([], ["--text", "the blue cat and the red"]),
    ("attribute lens", "--target"): ([], ["--target", "d"]),
    ("attribute lens", "--tune"): ([], ["--tune", "{texts}"]),
    ("attribute lens", "--direct"): (["--target", "d"], ["--direct", "{texts}"]),
    ("attribute lens", "--per"): (
        ["--target", "d", "--direct", "{texts}"],
        ["--per", "source"],
    ),
    ("attribute lens", "--position"): ([], ["--position", "2"]),
    ("attribute lens", "--seed"): (["--target", "d", "--direct", "{texts}"], ["--seed", "1"]),
    ("attribute lens", "--top"): (["--target", "d", "--direct", "{texts}"], ["--top", "2"]),
    ("attribute output", "--method"): ([], ["-m", "gradient_norm"]),
    ("attribute output", "--target"): ([], ["-t", "d|r"]),
    ("attribute flow", "--position"): ([], ["--position", "mean"]),
    ("circuit graph", "--target"): ([], ["-t", "d"]),
    ("circuit graph", "--top"): ([], ["--top", "2"]),
    ("circuit loadings", "--file"): ([], ["--file", "{more}"]),
    ("circuit loadings", "--target"): ([], ["-t", "d"]),
    ("circuit loadings", "--position"): ([], ["--position", "5"]),
    ("circuit loadings", "--top"): ([], ["--top", "2"]),
    ("list methods", "--paper"): ([], ["--paper", "attention"]),
    ("list metrics", "--paper"): ([], ["--paper", "attention"]),
    ("circuit path", "--route"): ([], ["--route", "1.1>logits"]),
    ("circuit path", "--top"): (["--route", "*>logits"], ["--top", "1"]),
    ("circuit path", "-n"): ([], ["-n", "6"]),
    ("circuit shares", "--file"): ([], ["--file", "{more}"]),
    ("circuit shares", "--position"): ([], ["--position", "induction"]),
    ("circuit shares", "--top"): ([], ["--top", "2"]),
    ("circuit shares", "--null"): ([], ["--null", "none"]),
    ("circuit shares", "-n"): ([], ["-n", "5"]),
    ("results show", "--metric"): ([], ["-m", "entropy"]),
    ("results show", "--model"): ([], ["--model", "planted:sink"]),
    ("results show", "--by"): ([], ["--by", "lowest"]),
    ("results show", "--top"): ([], ["--top", "2"]),
    ("steer", "--heads"): ([], ["--heads", "L1H1"]),
    ("steer", "--task"): ([], ["--task", "{texts}"]),
    ("steer", "--set factors"): ([], ["--set", "factors=0,1"]),
    ("steer", "--method"): (["--task", "induction"], ["--method", "add"]),
    ("steer", "--random"): ([], ["--random", "3"]),
    ("steer", "-n"): ([], ["-n", "5"]),
    ("steer", "--measure"): (["--task", "{texts}"], ["--measure", "accuracy"]),
    ("steer", "--max-length"): ([], ["--max-length", "12"]),
}
# another command altogether, where an option stands in place of the text
INSTEAD = {
    (f"attribute {name}", "--file"): ["bundled:induction", "--file", "{more}"]
    for name in ("output", "flow")
}
WRITTEN = ["bundled:induction", "--heads", "L1H0", "--text", TEXT]
INSTEAD |= {
    ("steer", "--text"): WRITTEN,
    ("steer", "--generate"): [*WRITTEN, "--generate", "3"],
    ("steer", "--set temperature"): [*WRITTEN, "--set", "temperature=2"],
}
for _name in ("importance verify", "importance ablate"):
    OTHER |= {
        (_name, "--task"): ([], ["--task", "{texts}"]),
        (_name, "--measure"): (["--task", "{texts}"], ["--measure", "accuracy"]),
        (_name, "-n"): ([], ["-n", "5"]),
        (_name, "--max-length"): ([], ["--max-length", "12"]),
        (_name, "--kind"): ([], ["--kind", "uniform-attention"]),
        (_name, "--reference"): (
            ["--kind", "mean-dataset", "--reference", "{texts}"],
            ["--reference", "{more}"],
        ),
        (_name, "--heads"): ([], ["--heads", "L0H1,L0H3,L1H1,L1H5,L1H6,L1H7"]),
        (_name, "--without"): ([], ["--without", "L0H2"]),
    }
# options without an effect on the answer, by what they are for
LOADING = "decides how a model is loaded, in one place for all commands (tests/cli/test_source.py)"
WHY = {
    "--device": LOADING,
    "--dtype": LOADING,
    "--attention": LOADING,
    "--revision": LOADING,
    "--import": LOADING,
    "--trust-remote-code": LOADING,
    "--allow-pickle": LOADING,
    "--remote": LOADING,
    "--tp-plan": LOADING,
    "--offload": LOADING,
    "--chat": "needs a chat template; tests/model/test_chats.py",
    "--set": "gives settings, which are tested each",
    "--overwrite": "replaces the output file; tests/cli/test_overwrite.py",
    "--debug": "shows the traceback of an error",
    "--quiet": "silences notes on stderr",
    "--batch-size": "prompts per pass; tests/heads/between_models/test_match.py counts passes",
    "--max-tokens": "tokens per pass; the values are those of single passes (tests/causal)",
    "--stack": "models of one stack have no other; tests/causal/test_game.py",
}
WHY_OF = {
    ("circuit path", "--task"): "the model knows the tokens of one task; tests/circuits has files",
    (
        "importance verify",
        "--players",
    ): "a causal check ablates single heads and refuses other units",
    ("importance ablate", "--null"): "needs no other value: see --null in tests/cli/test_causal.py",
}


def options_of(name: str) -> list[click.Option]:
    command: Any = main
    for word in name.split():
        command = command.commands[word]
    return [p for p in command.params if isinstance(p, click.Option)]


def flag_of(option: click.Option) -> str:
    return max((*option.opts, *option.secondary_opts), key=len)


def other_value(option: click.Option) -> list[str] | None:
    """Another value than the default, if the type of the option gives one."""
    flag = max(option.opts, key=len)
    if isinstance(option, Setting):
        value = _another(option)
        return None if value is None else ["--set", f"{option.name}={value}"]
    if option.is_flag:
        return [flag]
    value = _another(option)
    return None if value is None else [flag, value]


def _another(option: click.Option) -> str | None:
    kind: Any = option.type
    if kind is click.BOOL:
        return str(not option.default).lower()
    if isinstance(kind, click.Choice):
        return next(x for x in kind.choices if x != option.default)
    if isinstance(kind, (click.types.IntParamType, click.IntRange)) and isinstance(
        option.default, int
    ):
        return str(option.default + 1)
    return None


CASES = [
    pytest.param(name, option, id=f"{name} {max(option.opts, key=len)}")
    for name in BASE
    for option in options_of(name)
    if max(option.opts, key=len) not in WHY and (name, max(option.opts, key=len)) not in WHY_OF
]
LONG = [case for case in CASES if case.values[0] in SLOW]


@pytest.fixture(scope="module")
def seen() -> dict[tuple[str, ...], str]:
    """What commands printed, by their words."""
    return {}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results of two models."""
    from fixtures.commands import invoked

    folder = tmp_path_factory.mktemp("results")
    for model in ("planted:induction", "planted:sink"):
        done = invoked(
            [
                "score",
                model,
                "-m",
                "induction,entropy",
                "--null",
                "none",
                "--by-cluster",
                "-o",
                str(folder),
                "-q",
            ]
        )
        assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize(("name", "option"), [*(x for x in CASES if x not in LONG), *sampled(LONG)])
def test_an_option_changes_the_answer(
    run: Any,
    request: pytest.FixtureRequest,
    seen: dict[tuple[str, ...], str],
    tmp_path: Path,
    name: str,
    option: click.Option,
) -> None:
    from interp import bundled

    flag = max(option.opts, key=len)
    texts = tmp_path / "texts.txt"
    texts.write_text(TEXTS)
    more = tmp_path / "more.txt"
    more.write_text("two cats and a dog ran to the small house.\n")
    given = {
        "texts": str(texts),
        "more": str(more),
        "earlier": str(bundled.checkpoints("induction")[800]),
    }
    if name.startswith("results"):
        given["results"] = str(request.getfixturevalue("results"))
    writes = isinstance(option.type, OutFile)
    if writes or flag == "--out":
        suffix = ".html" if flag == "--html" else ".json"
        common, changed = [], [flag, str(tmp_path / (f"row{suffix}" if writes else "out"))]
    else:
        common, changed = OTHER.get((name, flag), ([], other_value(option)))
    assert changed is not None or (name, flag) in INSTEAD, (
        f"give another value of {flag} of {name} in OTHER"
    )

    def answer(words: list[str]) -> str:
        key = tuple(words)
        if key not in seen:
            result = run(
                *[x for word in words[:1] for x in word.split()],
                *(word.format(**given) for word in words[1:]),
            )
            assert result.exit_code == 0, result.output
            seen[key] = result.stdout
        return seen[key]

    plain = answer([name, *BASE[name], *common])
    if writes or flag == "--out":
        answer([name, *BASE[name], *(changed or ())])
        assert [path for path in tmp_path.rglob("*") if path.suffix != ".txt" and path.is_file()]
    else:
        other = INSTEAD.get((name, flag), [*BASE[name], *common, *(changed or ())])
        assert answer([name, *other]) != plain


def test_reasons_are_of_options_that_exist() -> None:
    there = {(name, max(o.opts, key=len)) for name in BASE for o in options_of(name)}
    assert {flag for _, flag in there} >= set(WHY)
    assert there >= {*OTHER, *INSTEAD, *WHY_OF}
