"""Every option of these commands changes what the command prints or writes, or a reason is stated.

A command runs once as it is and once per option with another value, which follows from the option's
type or is given in `OTHER`. A new option of one of the commands is tested without an edit, unless
its value cannot be guessed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from fixtures.commands import called

TEXTS = "on Monday Anna went to the field.\nthe red dog and the blue cat ran to the red barn.\n" * 3
BASE = {
    "compare match": ["bundled:induction", "{earlier}", "--random", "9", "--bootstraps", "9"],
    "importance verify": [
        "bundled:induction", "-m", "induction", "--top", "2", "--random", "4", "-n", "4",
    ],
    "importance ablate": ["bundled:induction", "-n", "4"],
    "attribute lens": ["bundled:induction", "--text", "the red dog and the red"],
}  # fmt: skip
# what stands in both runs, and what only in the second
OTHER: dict[tuple[str, str], tuple[list[str], list[str]]] = {
    ("compare match", "--random"): ([], ["--random", "0"]),
    ("compare match", "--bootstraps"): ([], ["--bootstraps", "0"]),
    ("compare match", "--top"): ([], ["--top", "3"]),
    ("compare match", "--file"): ([], ["--file", "{texts}"]),
    ("importance verify", "--metric"): ([], ["-m", "previous_token"]),
    ("importance verify", "--random"): ([], ["--random", "7"]),
    ("importance verify", "--top"): ([], ["--top", "3"]),
    ("attribute lens", "--text"): ([], ["--text", "the blue cat and the red"]),
    ("attribute lens", "--target"): ([], ["--target", "d"]),
    ("attribute lens", "--tune"): ([], ["--tune", "{texts}"]),
    ("attribute lens", "--direct"): (["--target", "d"], ["--direct", "{texts}"]),
    ("attribute lens", "--split"): (
        ["--target", "d", "--direct", "{texts}"],
        ["--split", "source"],
    ),
    ("attribute lens", "--position"): ([], ["--position", "2"]),
    ("attribute lens", "--seed"): (["--target", "d", "--direct", "{texts}"], ["--seed", "1"]),
    ("attribute lens", "--top"): (["--target", "d", "--direct", "{texts}"], ["--top", "2"]),
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
    "--device": LOADING, "--dtype": LOADING, "--attention": LOADING, "--revision": LOADING,
    "--import": LOADING, "--trust-remote-code": LOADING, "--allow-pickle": LOADING,
    "--remote": LOADING, "--tp-plan": LOADING,
    "--debug": "shows the traceback of an error", "--quiet": "silences notes on stderr",
    "--batch-size": "prompts per pass; tests/heads/between_models/test_match.py counts passes",
    "--max-tokens": "tokens per pass; the values are those of single passes (tests/causal)",
    "--stack": "models of one stack have no other; tests/causal/test_game.py",
}  # fmt: skip
WHY_OF = {
    (
        "importance verify",
        "--players",
    ): "a causal check ablates single heads and refuses other units",
    ("importance ablate", "--null"): "needs no other value: see --null in tests/cli/test_causal.py",
}


def options_of(name: str) -> list[click.Option]:
    return [p for p in called(name.split())[0].params if isinstance(p, click.Option)]


def flag_of(option: click.Option) -> str:
    return max((*option.opts, *option.secondary_opts), key=len)


def other_value(option: click.Option) -> list[str] | None:
    """Another value than the default, if the type of the option gives one."""
    flag = max(option.opts, key=len)
    if option.is_flag:
        negative = option.secondary_opts and option.default
        return [option.secondary_opts[0] if negative else flag]
    kind: Any = option.type
    if isinstance(kind, click.Choice):
        return [flag, next(x for x in kind.choices if x != option.default)]
    if isinstance(kind, (click.types.IntParamType, click.IntRange)) and isinstance(
        option.default, int
    ):
        return [flag, str(option.default + 1)]
    return None


CASES = [
    pytest.param(name, option, id=f"{name} {max(option.opts, key=len)}")
    for name in BASE
    for option in options_of(name)
    if max(option.opts, key=len) not in WHY and (name, max(option.opts, key=len)) not in WHY_OF
]


@pytest.fixture(scope="module")
def seen() -> dict[tuple[str, ...], str]:
    """What commands printed, by their words."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option"), CASES)
def test_an_option_changes_the_answer(
    run: Any, seen: dict[tuple[str, ...], str], tmp_path: Path, name: str, option: click.Option
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
    if flag == "--out":
        file = name == "attribute lens"
        common, changed = [], ["-o", str(tmp_path / ("row.json" if file else "out"))]
    else:
        common, changed = OTHER.get((name, flag), ([], other_value(option)))
    assert changed is not None, f"give another value of {flag} of {name} in OTHER"

    def answer(words: list[str]) -> str:
        key = tuple(words)
        if key not in seen:
            result = run(*(word.format(**given) for word in words))
            assert result.exit_code == 0, result.output
            seen[key] = result.stdout
        return seen[key]

    plain = answer([*name.split(), *BASE[name], *common])
    if flag == "--out":
        answer([*name.split(), *BASE[name], *changed])
        assert [path for path in tmp_path.rglob("*") if path.suffix != ".txt" and path.is_file()]
    else:
        assert answer([*name.split(), *BASE[name], *common, *changed]) != plain


def test_reasons_are_of_options_that_exist() -> None:
    there = {(name, max(o.opts, key=len)) for name in BASE for o in options_of(name)}
    assert {flag for _, flag in there} >= set(WHY)
    assert there >= {*OTHER, *WHY_OF}
