"""Claims that are limited to a kind of query: judged there alone, on heads that are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profiles.planted_rows import Row, documents, elsewhere, mixture, plant
from profiles.test_hypothesis import FUNCTIONS
from profiles.test_planted import copies, induction, previous

import interp
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.profiles import claim_fit, first_look
from interp.profiles.entries import QUERY_KINDS, judged_kinds
from interp.profiles.hypothesis_forms import read_hypothesis, stated_hypothesis
from interp.profiles.reading import TokenReader
from interp.profiles.verdict import HOLDS, IN_PART, NOT, OPEN
from interp.report.printed.hypothesis import hypothesis_text

LENGTH, EACH = 32, 12
SIZE: dict[str, Any] = {"n_documents": 64, "n_queries": 8, "max_length": LENGTH}
DOCUMENTS = [*documents(120, LENGTH, seed=1).ids]
AFTER = mixture((0.9, induction))


def twelfth(tokens):
    """One kind of query: one token of 23, so that few documents have two."""
    return tokens % EACH == 0


def next_twelfth(tokens):
    """Another kind, as frequent."""
    return tokens % EACH == 1


def two_after(query, key, tokens):
    """Attends two tokens after an earlier copy: off by one."""
    return (key >= 2) & (key <= query) & (tokens[key - 2] == tokens[query])


def where(kind: Callable, there: Row, rest: Row) -> Row:
    """Return a head that does one thing at the queries of a kind, and another at the others."""

    def row(window):
        marked = kind(np.asarray(window.ids))[np.asarray(window.queries)]
        return np.where(marked[:, None], there(window), rest(window))

    return row


def in_half(there: Row, rest: Row) -> Row:
    return lambda window: (there if window.ids[1] % 2 else rest)(window)


HEADS = [
    where(twelfth, AFTER, elsewhere),
    where(twelfth, in_half(AFTER, elsewhere), elsewhere),
    where(twelfth, elsewhere, AFTER),
    elsewhere,
]


@pytest.fixture
def limited_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable:
    """Judge on the planted heads with a ledger of one's own."""
    plant(monkeypatch, HEADS)
    monkeypatch.setattr(claim_fit, "read_rows", first_look.read_rows)
    model = interp.load("planted:noise")

    def ask(rule: Any, kind: Any, head: str = "L0H0", **options: Any) -> Any:
        given = {"entries": [{"keys": rule}]} | ({"queries": kind} if kind else {})
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        options = {"corpus": DOCUMENTS, "questions": folder, **SIZE, **options}
        return interp.judge(model, given, head=head, **options)

    return ask


def test_a_claim_holds_at_its_queries_alone(limited_verdict: Callable) -> None:
    for head, rule, kind, words in (
        ("L0H0", induction, twelfth, {HOLDS}),
        ("L0H0", two_after, twelfth, {NOT}),
        ("L0H0", induction, next_twelfth, {NOT}),
        ("L0H0", induction, None, {NOT, OPEN}),  # as one about the head
        ("L0H1", induction, twelfth, {IN_PART, OPEN}),  # right in half of the documents
        ("L0H2", induction, twelfth, {NOT}),  # right everywhere else
        ("L0H2", induction, next_twelfth, {HOLDS}),
        ("L0H3", induction, twelfth, {NOT}),
    ):
        found = limited_verdict(rule, kind, head)
        assert found.facts["verdict"] in words, (head, rule, kind, found.score[0])
        assert found.facts["question"] == 1


def test_a_claim_says_where_it_was_judged_and_how_much_that_is(limited_verdict: Callable) -> None:
    found = limited_verdict(induction, twelfth)
    at = found.facts["at"]
    every = [twelfth(np.array(ids))[2:] for ids in DOCUMENTS]
    assert at["of_texts"] == len(DOCUMENTS)
    assert at["queries"] == pytest.approx(np.mean(every))
    assert at["texts"] == sum(x.any() for x in every)
    rows = dict(zip(found.number, found.score, strict=True))
    assert rows["attention of the queries of the kind"] == pytest.approx(at["queries"], abs=0.008)
    of_all = rows["attention: induction"] * rows["attention of the queries of the kind"]
    line, *_ = hypothesis_text([found]).splitlines()
    text = " ".join(hypothesis_text([found]).split())
    assert line.startswith(
        f"L0H0=list: induction from twelfth: holds, at twelfth alone ({at['queries']:.1%} of the"
    )
    assert "of its attention); explained 0." in line
    assert f"{at['judged']} of these queries judge. There the hypothesis explains" in text
    assert f"; {of_all:.1%} of all its attention" in text
    assert found.n[0] == at["texts"] - 32
    whole = limited_verdict(induction, None)
    assert whole.facts["at"] is None
    assert "alone" not in whole.first_line()


def test_only_documents_with_such_queries_fit_and_judge(limited_verdict: Callable) -> None:
    found = limited_verdict(induction, twelfth, corpus=DOCUMENTS[:80])
    having = sum(twelfth(np.array(ids))[2:].any() for ids in DOCUMENTS[:80])
    fits = min(32, having // 2)
    assert found.facts["questions"][0]["documents"] == having - fits < 48
    with pytest.raises(PromptError, match="0 fresh documents with queries from never left of 40"):
        limited_verdict(induction, never, corpus=DOCUMENTS[:40])


def never(tokens):
    return tokens < 0


def test_too_few_queries_cannot_be_told_and_say_how_many_would(limited_verdict: Callable) -> None:
    found = limited_verdict(induction, twelfth, n_documents=10)
    assert found.facts["verdict"] == OPEN
    needed = found.facts["needed"]
    assert 10 < needed < 30
    text = " ".join(hypothesis_text([found]).split())
    assert f"about {needed} fresh documents with queries from twelfth would tell" in text
    assert limited_verdict(induction, twelfth, n_documents=2 * needed).facts["verdict"] == HOLDS


def test_random_rules_do_not_hold_at_few_queries(limited_verdict: Callable) -> None:
    for number in range(4):
        a, b = np.random.default_rng(number).integers(1, 100, 2).tolist()

        def rule(query, key, tokens, *, a=a, b=b):
            return ((a * tokens[key] + b * tokens[query]) % 101 % 3 == 0) & (key < query)

        found = limited_verdict(rule, twelfth, f"L0H{number % 4}", seed=number)
        assert found.facts["verdict"] == NOT
        assert found.score[0] < 0.05


def test_a_claim_about_positions_is_compared_with_even_attention(limited_verdict: Callable) -> None:
    assert limited_verdict(previous, twelfth).facts["reference"] == "even"
    assert limited_verdict(copies, twelfth).facts["reference"] == "position"


@pytest.fixture(scope="module")
def story_teller() -> interp.Model:
    return interp.load("bundled:stories")


def test_forms_of_a_limit_say_the_same(story_teller: interp.Model, tmp_path: Path) -> None:
    listed = tmp_path / "list.toml"
    listed.write_text('queries = "names"\n[[entries]]\nkeys = "previous"\n')
    table = {"head": "L1H0", "entries": [{"keys": "previous"}], "queries": "names"}
    given = ("L1H0=previous from names", "L1H0 = previous  from  names", f"L1H0={listed}", table)
    for each in given:
        said = read_hypothesis(each, story_teller)
        assert (said.at, [x.name for x in said.entries]) == (judged_kinds()["names"], ["previous"])
    assert said.asked == "L1H0=list: previous from names"
    assert read_hypothesis(f"L1H0={listed} from pronouns", story_teller).at.words == "pronouns"
    assert read_hypothesis("L1H0=previous before names", story_teller).at.words == "before names"
    assert read_hypothesis("L1H0=previous", story_teller).at is None
    rules = tmp_path / "rules.py"
    rules.write_text(f"{FUNCTIONS}\ndef low(tokens):\n    return tokens < 40\n")
    said = read_hypothesis(f"L1H0={rules}:copies from {rules}:low", story_teller)
    assert said.asked.count("(sha256 ") == 2
    reading = TokenReader(story_teller).read([3, 50, 4])
    assert said.at.mask(reading).tolist() == [True, False, True]
    assert said.at.limit == "from low"


def test_a_sentence_stays_one(story_teller: interp.Model) -> None:
    given = "L1H0=looks from above, or names from names"
    assert stated_hypothesis(given, readable=True).content.startswith("looks from above")
    for given in ("L1H0=previous from name", "L1H0=previous before", "L1H0=previous from "):
        with pytest.raises((UnknownName, OptionError), match=r"kind of queries|is a sentence"):
            stated_hypothesis(given)
    with pytest.raises(UnknownName, match="previuos"):
        stated_hypothesis("L1H0=previuos from names")


def test_kinds_are_those_of_lists_and_the_tokens_before_them(story_teller: interp.Model) -> None:
    text = 'Ann had a hat. "It is my hat," said Ann. "Go home," said Bob.'
    reading = TokenReader(story_teller).read(story_teller.tokenizer(text)["input_ids"])
    tokens = story_teller.tokenizer.convert_ids_to_tokens(reading.tokens.tolist())
    kinds = judged_kinds()
    assert len(kinds) == 2 * len(QUERY_KINDS)
    marks = np.flatnonzero(kinds["quotation marks"].mask(reading))
    closing = np.flatnonzero(kinds["closing quotation marks"].mask(reading))
    assert closing.tolist() == marks[1::2].tolist()
    before = kinds["before closing quotation marks"].mask(reading)
    assert [tokens[at] for at in np.flatnonzero(before)] == [",", ","]
    for words, kind in kinds.items():
        if words.startswith("before "):
            own = kinds[words.removeprefix("before ")].mask(reading)
            assert kind.mask(reading).tolist() == [*own[1:].tolist(), False]


def test_what_selects_no_queries_is_refused(limited_verdict: Callable) -> None:
    for kind, reason in (
        (lambda tokens: tokens[0], r"returned an array of shape \(\) and type int64"),
        (lambda tokens: tokens, "expected True or False for each"),
        (lambda tokens: tokens[:3] > 0, r"shape \(3,\) and type bool for 32 tokens"),
        (lambda tokens: 1 / 0, "ZeroDivisionError"),
    ):
        with pytest.raises(OptionError, match=reason):
            limited_verdict(induction, kind)
    with pytest.raises(OptionError, match="names are told by their text: the model has no token"):
        limited_verdict(induction, "names")
    with pytest.raises(UnknownName, match="nmaes"):
        limited_verdict(induction, "nmaes")
