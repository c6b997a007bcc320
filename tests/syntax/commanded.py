"""What tests of `interp study trees` share."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

from interp.core.resources import folder
from interp.syntax.conllu import read_conllu

BANK = read_conllu(folder("data") / "treebank.conllu")
FEW = ("-n", "24")
Run = Callable[..., Result]


def errors(result: Result) -> list[str]:
    begin = "interp: error: "
    lines = [line for line in result.stderr.splitlines() if line]
    assert all(line.startswith("interp: ") for line in lines), result.stderr
    return [line.removeprefix(begin) for line in lines if line.startswith(begin)]
