"""Portability: a rule that a head follows on one corpus only is found to be gone on the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from profiles.planted_rows import documents, even, mixture, plant

import interp
from interp.cli.main import main
from interp.core.errors import OptionError
from interp.profiles import portability
from interp.profiles.corpus import TextWindow

FIRST, SECOND = documents(40, 40, seed=0).ids, documents(40, 40, seed=1, vocab=12).ids
SIZE = {"n_queries": 12, "rules": ["induction", "duplicate_token"]}


def _induction(query, key, tokens):
    before = np.r_[-1, tokens[:-1]]
    return (before[key] == tokens[query]) & (key < query)


def _copies(query, key, tokens):
    return (tokens[key] == tokens[query]) & (key < query)


EVERYWHERE = mixture((0.6, _induction))
OTHERWISE = mixture((0.6, _copies))


def _turns(window: TextWindow) -> np.ndarray:
    """Attend by induction in the first corpus, which alone has many tokens, else to copies."""
    return (EVERYWHERE if max(window.ids) > 11 else OTHERWISE)(window)


@pytest.fixture(scope="module")
def carried(carried_model: interp.Model):
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, [EVERYWHERE, _turns, lambda window: 0.8 * even(window)])
        found = portability(carried_model, {"first": FIRST, "second": SECOND}, **SIZE)
    return found.to_pandas().set_index(["name", "fitted_on", "judged_on"])


@pytest.fixture(scope="module")
def carried_model() -> interp.Model:
    return interp.load("planted:induction")


def _heads(frame, at: int) -> list[str]:
    """Return the heads that follow the planted row of a number."""
    names = list(dict.fromkeys(name for name, _, _ in frame.index))
    return names[at::3]


def test_a_rule_that_holds_everywhere_is_carried_over(carried) -> None:
    for name in _heads(carried, 0):
        for start, to in (("first", "second"), ("second", "first")):
            row = carried.loc[(name, start, to)]
            assert (row["labels"], row["gone"]) == ("induction", "")
            assert row["lost"] < 0.1
            assert row["score"] > row["position"] + 0.1


def test_a_rule_of_one_corpus_is_gone_on_the_other(carried) -> None:
    for name in _heads(carried, 1):
        row = carried.loc[(name, "first", "second")]
        assert (row["labels"], row["gone"]) == ("induction", "induction")
        assert row["lost_low"] > 0.1
        back = carried.loc[(name, "second", "first")]
        assert (back["labels"], back["gone"]) == ("duplicate_token", "duplicate_token")


def test_an_even_head_has_nothing_to_carry(carried) -> None:
    for name in _heads(carried, 2):
        assert set(carried.loc[name]["labels"]) == {""}


def test_on_its_own_corpus_nothing_is_lost(carried) -> None:
    own = carried[[start == to for _, start, to in carried.index]]
    kept = own.drop(index=_heads(carried, 2), level=0)  # an even head has nothing to lose
    assert (kept[["lost", "lost_low", "lost_high"]] == 0).to_numpy().all()
    assert set(own["gone"]) == {""}


def test_two_halves_of_one_corpus_lose_little_and_seldom(
    carried_model: interp.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, [EVERYWHERE])
    lost = []
    for seed in range(2):
        rows = documents(80, 40, seed=10 + seed).ids
        found = portability(carried_model, {"a": rows[:40], "b": rows[40:]}, **SIZE).to_pandas()
        away = found[found["fitted_on"] != found["judged_on"]]
        assert set(away["gone"]) == {""}
        lost += away["lost"].tolist()
    assert abs(float(np.mean(lost))) < 0.02


def test_altered_corpora_are_made_of_the_same_windows(carried_model: interp.Model) -> None:
    with pytest.raises(OptionError, match="no tokenizer with a first or last token"):
        portability(carried_model, {"a": FIRST}, alter=["packed"], **SIZE)
    with pytest.raises(OptionError, match="give at least two corpora"):
        portability(carried_model, {"a": FIRST}, **SIZE)
    model = interp.load("bundled:induction")
    rows = [[model.tokenizer.bos_token_id, *(x + 10 for x in row[1:])] for row in FIRST]
    found = portability(model, {"a": rows}, alter=["first_token", "packed"], heads=["L1H0"], **SIZE)
    assert list(dict.fromkeys(found.fitted_on)) == ["a", "a, without first token", "a, packed"]
    made = found.provenance["corpora"]
    assert made["a"]["first_token"] == "special"
    assert made["a, without first token"]["first_token"] == "text"
    assert made["a"]["tokens"] - made["a, without first token"]["tokens"] == len(rows)
    assert abs(made["a, packed"]["tokens"] - made["a"]["tokens"]) < len(rows[0])
    with pytest.raises(OptionError, match=r"alter must be a list .each 'first_token' or 'packed'."):
        portability(model, {"a": rows}, alter=["shuffled"], **SIZE)


def test_a_run_that_was_stopped_goes_on(
    carried_model: interp.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = {"first": FIRST[:12], "second": SECOND[:12]}
    whole = portability(carried_model, corpora, **SIZE)
    seen: list[int] = []

    def stop(name: str, at: int, total: int) -> None:
        seen.append(at)
        if at == 4 and len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        portability(carried_model, corpora, **SIZE, resume=tmp_path, progress=stop)
    again = portability(carried_model, corpora, **SIZE, resume=tmp_path, progress=stop)
    assert seen == [1, 2, 3, 4, 4, 5, 6]  # the step at which it stopped is done again
    assert again.equals(whole)


def test_the_command_wants_two_corpora() -> None:
    found = CliRunner().invoke(main, ["compare", "corpora", "bundled:induction"])
    assert found.exit_code == 2
    assert "give --corpus at least twice" in found.output
