"""Verdicts on heads whose behaviour is known: the page, the heads, and some verdicts again."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import interp
from benchmarks import judge_attack, judge_reserve
from benchmarks.judge import verdicts
from benchmarks.judge_heads import LEAST, counted, documents, known_heads
from benchmarks.judge_loop import entries_of, exchanged
from benchmarks.judge_page import EXPECTED, judge_page, rows_of
from benchmarks.judge_rules import KINDS, as_form
from interp.core.statistics import mean_above_p
from interp.profiles.held_back import ANSWERS, POSITIVE

FOLDER = Path(__file__).parents[2] / "benchmarks"


def stored() -> dict:
    return json.loads((FOLDER / "judge.json").read_text())


def test_the_page_states_what_was_measured() -> None:
    kept = stored()
    assert judge_page(kept) == (FOLDER / "judge.md").read_text()
    for *_, form, letters, shares in rows_of(kept):
        assert len(letters) == len(shares) == (4 if form == "predicate" else 1)


@pytest.mark.slow
def test_all_known_heads_were_measured() -> None:
    kept, heads = stored(), known_heads()
    measured = {f"{model} {head}" for model, e in kept["models"].items() for head in e["heads"]}
    assert measured == {f"{one.model} {one.head}" for one in heads}
    assert len(measured) == len(heads) >= 60
    for entry in kept["models"].values():
        for row in entry["heads"].values():
            assert row["counted"] >= LEAST


def test_every_deviation_has_a_reason() -> None:
    assert "unexplained" not in (FOLDER / "judge.md").read_text()


@pytest.mark.parametrize(
    "name",
    ["planted:duplicate_token", "planted:positional", "compiled:detect_pattern+sort_unique"],
)
def test_attention_is_on_the_keys_of_the_rule(name: str) -> None:
    model = interp.load(name)
    heads = [head for head in known_heads() if head.model == name]
    assert min(counted(model, name, heads)) > 0.99
    ids = next(ids for ids in documents(model, name, 50, 5) if ids[1] % 2 == 0)
    for known in heads:  # and the others name other keys, of a half right one on every other text
        right, near, wrong = (
            as_form(known.hypothesis(kind)[1], "program", model.kind == "causal")(ids)
            for kind in KINDS
        )
        assert right.shape == (len(ids), len(ids))
        assert not np.allclose(right, near)
        assert not np.allclose(right, wrong)


@pytest.mark.slow
def test_verdicts_are_those_of_the_page() -> None:
    name = "compiled:detect_pattern+sort_unique"
    heads = [head for head in known_heads() if head.model == name]
    kept = stored()["models"][name]["heads"]
    for head, kind, form, letter, share in verdicts(name, heads, 1):
        letters, shares = kept[head][kind][form]
        assert (letter in EXPECTED[kind]) == (letters[1] in EXPECTED[kind]), (head, kind)
        assert share == pytest.approx(shares[1], abs=0.05)


def test_lists_are_exchanged_between_heads_and_leave_out_what_is_avoided() -> None:
    names = [f"L0H{n}" for n in range(12)]
    other = exchanged(names, 0)
    assert sorted(other.values()) == sorted(names)
    assert all(a != b for a, b in other.items())
    entry = {"rule": "names", "queries": "pronouns", "members": (), "avoided": False}
    group = {"rule": "favoured", "queries": "", "members": (" she", "."), "avoided": False}
    avoided = group | {"avoided": True}
    assert entries_of({"entries": [entry, avoided, group]}) == [
        {"keys": "names", "queries": "pronouns"},
        {"tokens": [" she", "."]},
    ]


@pytest.mark.slow
def test_a_stopped_attack_goes_on_with_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that was not stored is asked again; limited claims are questions of the ledger."""
    monkeypatch.setattr(judge_attack, "N", 8)
    monkeypatch.setattr(judge_attack, "SHOWN", 1)

    def attacked(folder: str, stops: list[int]) -> dict:
        monkeypatch.setattr(judge_attack, "LEDGER", tmp_path / folder)
        kept: dict = {}
        for until in stops:
            judge_attack.attack_rows(kept, lambda: None, until)
            kept = json.loads(json.dumps(kept))
            kept[judge_attack.ARMS[0]]["asked"] = max(1, until - 1)  # killed before it was stored
            row = kept[judge_attack.ARMS[0]]
            last = (until - 1) % 2
            row["letters"][last] = row["letters"][last][:-1]
        return kept

    whole, stopped = attacked("whole", [4]), attacked("stopped", [2, 4])
    for row in (*whole.values(), *stopped.values()):
        row.pop("seconds")
    assert whole == stopped
    [ledger] = (tmp_path / "stopped").glob("*.jsonl")
    asked = [json.loads(line) for line in ledger.read_text().splitlines()[1:]]
    assert len(asked) == 4
    assert ["from chosen" in one["asked"] for one in asked] == [False, True, False, True]


def test_bounds_of_documents_held_back_are_those_of_the_page() -> None:
    kept = stored()["reserve"]
    epsilon = np.linspace(1e-3, 1, 100_000)
    for n, bound in kept["certified"]:
        error = 8 * np.log(2 * ANSWERS / 0.05) / (epsilon * n) + np.exp(epsilon) - 1
        assert bound == pytest.approx(error.min(), abs=0.01)
    for share, least, *needed in kept["needed"]:
        for positive, n in enumerate(needed):
            sequences = POSITIVE * math.comb(ANSWERS, positive + 1) * 2**positive
            below, above = (mean_above_p(np.full(m, share), least) for m in (n - 1, n))
            assert above <= 0.05 / sequences < below
    n, *counts = kept["fooled"][0]
    for numbers, count in zip((False, True), counts, strict=True):
        some = sum(judge_reserve.fooled(n, seed, numbers=numbers) for seed in range(60))
        assert some <= count <= judge_reserve.ATTACKS - 60 + some
