"""Held-back documents: their levels, which they are, answers once fresh ones are used up."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profiles.planted_rows import documents, elsewhere, mixture, plant
from profiles.test_judge import after_copies, two_after
from profiles.test_planted import induction, previous
from together import over

import interp
from interp.cli.mcp.tools import TOOLS, asked_questions
from interp.core.documents import seal
from interp.core.errors import OptionError, PromptError
from interp.core.statistics import mean_above_p
from interp.profiles import claim_fit, first_look, held_back
from interp.profiles.corpus import DocumentCorpus, sample_corpus
from interp.profiles.held_back import (
    FEWEST,
    NOT_SHOWN,
    POSITIVE,
    PREFIX,
    HeldAnswers,
    part_documents,
)
from interp.profiles.ledger import QuestionLedger
from interp.profiles.verdict import HOLDS, IN_PART
from interp.report.printed import printed

LENGTH = 32
TEXTS = [*documents(200, LENGTH, seed=3).ids]
SIZE: dict[str, Any] = {"n_documents": 48, "n_queries": 8, "max_length": LENGTH}
HEADS = [mixture((0.9, induction)), mixture((0.9, previous)), elsewhere]


def next_kind(tokens):
    """Half of the tokens, at which a claim may be limited."""
    return tokens % 2 == 0


@pytest.fixture
def ask_planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable:
    """Judge on planted heads with one ledger."""
    plant(monkeypatch, HEADS)
    monkeypatch.setattr(claim_fit, "read_rows", first_look.read_rows)
    model = interp.load("planted:noise")

    def asked(given: Any, head: str | None = "L0H0", texts: Any = TEXTS, **options: Any) -> Any:
        options = {"questions": tmp_path, **SIZE, **options}
        return interp.judge(model, given, texts, head=head, **options)

    return asked


@pytest.fixture
def spent(ask_planted: Callable) -> Callable:
    """The same, once the fresh documents are used up."""
    left = [ask_planted("previous").facts["fresh_left"] for _ in range(3)]
    assert left == sorted(left, reverse=True)
    assert left[-1] < 8
    return ask_planted


def test_the_levels_of_all_courses_add_up_to_alpha(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sequences of answers before a question, counted one by one."""
    monkeypatch.setattr(held_back, "ANSWERS", 6)
    monkeypatch.setattr(held_back, "POSITIVE", 3)
    reached: set[tuple[str, ...]] = {()}
    for course in itertools.product((NOT_SHOWN, HOLDS, IN_PART), repeat=6):
        reached.update(course[:n] for n in range(6))
    total = 0.0
    for course in reached:
        state = HeldAnswers(0.05)
        for answer in course:
            state = state.after(answer)
        total += state.level if state.left[1] > 0 else 0
    assert total == pytest.approx(0.05)
    assert HeldAnswers(0.05, 6, 1).left == (0, 2)
    assert HeldAnswers(0.05, 3, 3).left == (0, 0)


def test_one_document_in_five_is_held_back_with_its_copies() -> None:
    model = interp.load("planted:noise")
    texts = [*documents(400, LENGTH, seed=4).ids]
    copies = [(*ids[:-1], ids[1]) for ids in texts[:100]]
    corpus = DocumentCorpus([*texts, *copies])
    windows = sample_corpus(corpus, model, n_documents=None, max_length=LENGTH).windows
    free, held = part_documents(windows, (), hold=True)
    assert 0.14 < len({w.cluster for w in held}) / len({w.cluster for w in windows}) < 0.26
    assert not {w.cluster for w in free} & {w.cluster for w in held}
    assert len(free) + len(held) == len(windows)
    assert part_documents(windows[::-1], (), hold=True)[1] == held[::-1]
    answered = part_documents(windows, {free[0].content}, hold=False)[1]
    assert {w.cluster for w in answered} == {free[0].cluster}


def test_held_back_documents_answer_without_numbers(spent: Callable) -> None:
    """Of every form, right claims hold, wrong ones do not, and no number says how nearly."""
    wrong = [spent(two_after), spent("previous"), spent([{"keys": "itself"}])]
    assert {x.facts["verdict"] for x in wrong} == {NOT_SHOWN}
    rights = [induction, after_copies, [{"keys": "induction"}]]
    limited = {"head": "L0H0", "entries": [{"keys": "induction"}], "queries": next_kind}
    right = [*(spent(x) for x in rights), spent(limited, head=None)]
    assert {x.facts["verdict"] for x in right} <= {HOLDS, IN_PART}
    assert right[0].facts["verdict"] == HOLDS
    for found in (*wrong, *right):
        assert not {"p", "needed", "examples", "beaten", "reference"} & {*found.facts}
        assert [*found.number] == ["documents held back", "answers left", "positive answers left"]
        asked = found.facts["questions"][-1]
        assert (asked["p"], asked["level"]) == ({}, {})
    assert wrong[-1].score.tolist()[1:] == [97, POSITIVE]
    assert right[-1].score.tolist()[1:] == [0, 0]
    text = " ".join(printed([right[0]]).split())
    assert "by documents held back" in text
    assert "Left: 96 answers, of which 3 can be positive" in text
    with pytest.raises(PromptError, match=r"gave 7 of 100 answers, and 4 of 4 positive ones"):
        spent("induction")


def test_no_document_is_fresh_after_it_gave_an_answer(spent: Callable, tmp_path: Path) -> None:
    spent(two_after)
    [path] = tmp_path.glob("*.jsonl")
    answered = json.loads(path.read_text().splitlines()[-1])["documents"]
    assert all(key.startswith(PREFIX) for key in answered)
    back = {key.removeprefix(PREFIX) for key in answered}
    more = [*TEXTS[: FEWEST - 40], *documents(20, LENGTH, seed=8).ids]
    found = spent("previous", texts=more)
    [*_, last] = [json.loads(line) for line in path.read_text().splitlines()]
    assert "held_back" in found.facts
    assert not back & {*last["documents"]}


def test_small_corpora_hold_nothing_back(ask_planted: Callable) -> None:
    few = TEXTS[: FEWEST - 60]
    found = ask_planted("previous", texts=few)
    assert (found.facts["held_back"], found.facts["fresh_left"]) == (0, 28)
    assert "held back" not in printed([found])
    ask_planted("previous", texts=few)
    with pytest.raises(PromptError, match=r"none is held back of fewer than 160"):
        ask_planted("previous", texts=few)


def test_claims_chosen_by_answers_get_no_false_one() -> None:
    """Each of ten keys is right on a tenth of the documents, so that no claim holds in part."""

    def attacks(level: Callable) -> float:
        false = 0
        for seed in range(40):
            rng, positive = np.random.default_rng(seed), 0
            right = rng.integers(10, size=40)
            for _ in range(100):
                shares = (rng.integers(10, size=40) == right).astype(float)
                positive += mean_above_p(shares, 0.1) <= level(min(positive, POSITIVE - 1))
            false += positive > 0
        return false / 40

    assert attacks(lambda positive: HeldAnswers(0.05, 0, positive).level) <= 0.05
    assert attacks(lambda positive: 0.05) > 0.1


def changed(**entries: Any) -> Callable[[dict], dict]:
    return lambda line: line | entries


@over(
    ("change", "text"),
    [
        pytest.param(changed(documents=[f"{PREFIX}a", "b"]), "not by the rules", id="a fresh one"),
        pytest.param(
            changed(p={"holds": 0.5}, level={"holds": 0.5}, found={"holds": False}),
            "not by the rules",
            id="a p-value",
        ),
        pytest.param(changed(documents=[f"{PREFIX}d0"]), "used before", id="a used document"),
        pytest.param(changed(documents=["h0"]), "used before", id="fresh after an answer"),
    ],
)
def test_lines_about_documents_held_back_are_checked(
    tmp_path: Path, change: Callable, text: str
) -> None:
    ledger = QuestionLedger(tmp_path / str(len([*tmp_path.iterdir()])), {"model": "m"})
    for keys, p in ((["d0"], {"holds": 0.5}), ([f"{PREFIX}h0"], {}), ([f"{PREFIX}h0"], {})):
        with ledger.turn() as turn:
            turn.write(asked="", documents=keys, p=p, verdict=NOT_SHOWN)
    assert ledger.read()[0].answers == HeldAnswers(0.05, 2, 0)
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    last = json.dumps(seal(change(json.loads(lines[-1])))).encode() + b"\n"
    ledger.path.write_bytes(b"".join([*lines[:-1], last]))
    with pytest.raises(OptionError, match=f"line 4: .*{text}"):
        ledger.questions()


def test_a_spent_ledger_takes_no_further_answer(tmp_path: Path) -> None:
    ledger = QuestionLedger(tmp_path, {"model": "m"})
    asked: list[dict] = []
    for at in range(POSITIVE + 1):
        with ledger.turn() as turn:
            given = {"asked": "", "documents": [f"{PREFIX}h"], "p": {}, "verdict": IN_PART}
            if at == POSITIVE:
                with pytest.raises(OptionError, match="not by the rules"):
                    turn.write(**given)
            else:
                asked.append(turn.write(**given))
    assert len(ledger.questions()) == POSITIVE
    model = interp.load("planted:noise")
    assert asked_questions(model, tmp_path) == []
    assert "holds in part (held back)" in TOOLS["ledger"].tell(asked, {})
