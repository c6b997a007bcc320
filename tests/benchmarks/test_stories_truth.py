"""Known truth of emerged heads: planted patterns are found, positions and noise are not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks import stories_truth
from benchmarks.stories_truth import KIND, POSITION, ReadText, measured_truth, shown_cells
from benchmarks.stories_truth_counts import (
    AT,
    BEFORE,
    BOTH,
    BY_KIND,
    BY_POSITION,
    DISTANCES,
    OF_ALL,
    PICKED,
    QUESTIONS,
    RELATIONS,
    ROWS,
    TARGETS,
    WHOLE,
    Expected,
    asked_pairs,
    class_of,
    text_counts,
)
from benchmarks.stories_truth_names import (
    AT_QUERIES,
    COREFERENCE,
    EXACT,
    KINDS,
    LOOSE,
    RULES,
    SCORES,
    named_by_line,
    named_exactly,
    named_loosely,
)
from benchmarks.stories_truth_page import (
    ANY,
    BY_LINE,
    HOLDS,
    IN_PART,
    LISTS,
    LOOSELY,
    agreement_rows,
    pair_rows,
    stories_truth_page,
)
from interp.core.registry import METRICS
from interp.heads.roles.declared import ROLES
from interp.profiles.entries import NEXT_COPY, QUERY_KINDS, judged_kinds
from interp.profiles.entries import PLACES as PLACE_SETS
from interp.profiles.hypothesis_forms import stated_hypothesis
from interp.profiles.rules import declared_rules
from training.stories import RELATIONS as ANNOTATED
from training.stories import stories
from training.stories.tokens import TokenAnnotation, on_tokens

FOLDER = Path(__file__).parents[2] / "benchmarks"
ANTECEDENT, PERSONS, PREVIOUS, FIXED, NOISE = range(5)
"""Planted heads: from pronouns to the antecedent; to all antecedents of the text; by position; and
attention drawn at random."""


def planted(n: int, seed: int) -> Iterator[ReadText]:
    """Stories whose tokens are words and marks, with the attention of the planted heads."""
    for made in stories(n, seed):
        spans = [m.span() for m in re.finditer(r"\w+|[^\w\s]", made.text)]
        offsets = [(0, 0), *spans]
        words = [made.text[slice(*span)] for span in offsets]
        ids = [sorted({*words}).index(word) for word in words]
        asked = asked_pairs(on_tokens(made, offsets), ids)
        length = len(ids)
        rng = np.random.default_rng(made.seed)
        even = np.tril(np.ones((length, length)))
        even[:, 0] = 0
        far = np.arange(length)[:, None] - np.arange(length)
        near = even * np.exp(-far.clip(0) / 20)
        pattern = np.stack([near, near, even * (far == 1), even * (far == 3), near])
        pattern[NOISE] *= rng.exponential(size=even.shape) ** 3  # few keys have most of each row
        one = asked[QUESTIONS.index(("antecedent", AT))]
        persons = np.unique(one.targets[1])
        pattern[PERSONS][np.ix_(one.queries, persons)] *= 20  # before rows are normalised
        pattern /= pattern.sum(2, keepdims=True).clip(1e-12)
        pattern[ANTECEDENT, one.queries] *= 0.4
        share = np.bincount(one.targets[0], minlength=length)[one.targets[0]]
        pattern[ANTECEDENT, *one.targets] += 0.6 / share
        pattern[:, :, 0] = rng.random((5, length)) * 0.5  # the sink, with a varying share
        pattern[:, :, 1:] *= 1 - pattern[:, :, :1]
        pattern[:, :, 0] = 0
        yield pattern, asked


@pytest.fixture(scope="module")
def planted_truth() -> dict:
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("N_FIT", 40), ("N_CHOOSE", 40), ("N_JUDGE", 50), ("NULLS", 3)):
            patch.setattr(stories_truth, name, size)
        return measured_truth([f"L0H{head}" for head in range(5)], planted)


def test_a_head_on_the_antecedent_is_found_and_told_from_one_on_all_persons(planted_truth) -> None:
    rows = {row["head"]: row for row in planted_truth["rows"] if row["relation"] == "antecedent"}
    assert rows["L0H0"]["true"]
    assert rows["L0H0"]["picks"]
    assert rows["L0H0"]["position"]["share"] > 0.6
    beyond, low, high = rows["L0H0"]["position"]["beyond"]
    assert 0.5 < low < beyond < high < 0.65
    assert rows["L0H0"]["kind"]["share"] > 0.9
    assert rows["L0H1"]["true"]
    assert not rows["L0H1"]["picks"]
    assert abs(rows["L0H1"]["kind"]["beyond"][0]) < 0.02
    assert {row["place"] for row in rows.values()} == {AT}
    for name in ("position", "kind"):  # corrected over the cells that were chosen alone
        assert rows["L0H0"][name]["p"] == pytest.approx(len(planted_truth["rows"]) / 20_000)
    share = rows["L0H0"]["of_all"]  # pronouns are few among all queries
    assert 0.01 < share < 0.08


def test_positions_and_noise_are_no_relation(planted_truth) -> None:
    assert not [row for row in planted_truth["rows"] if row["head"] in ("L0H2", "L0H3", "L0H4")]
    shares = np.array([question["shares"] for question in planted_truth["questions"].values()])
    assert np.abs(shares[:, [PREVIOUS, FIXED]]).max() < 1e-9
    often = [question["queries"] > 2 for question in planted_truth["questions"].values()]
    assert np.abs(shares[often, NOISE]).max() < 0.03


def test_nothing_is_shown_where_the_pairs_are_wrong(planted_truth) -> None:
    for null in ("foreign", "exchanged"):
        assert planted_truth[null]["draws"] == 3
        assert planted_truth[null]["shown"] == planted_truth[null]["with_any"] == 0
        assert planted_truth[null]["cells"] >= 3 * 5 * 10


def test_random_attention_is_called_different_as_often_as_the_level_says(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    counts = np.ones((40, len(QUESTIONS), 7, 60))
    counts[:, :, TARGETS] = rng.gamma(1, 0.2, (40, len(QUESTIONS), 60))
    counts[:, :, BY_POSITION] = 0.2  # the mean
    assert not shown_cells(counts, POSITION).shown.any()
    monkeypatch.setattr(stories_truth, "LEAST", 0.0)
    assert shown_cells(counts, POSITION).shown.sum() <= 1  # of 1080, by Holm's correction
    monkeypatch.setattr(stories_truth, "holm", lambda p: p)
    assert shown_cells(counts, POSITION).shown.mean() == pytest.approx(0.025, abs=0.015)
    counts[:, 3, TARGETS, 7] += 0.3
    assert np.argwhere(shown_cells(counts, POSITION).share > 0.25).tolist() == [[3, 7]]


def test_the_cells_that_are_not_asked_do_not_count() -> None:
    rng = np.random.default_rng(1)
    counts = np.ones((30, len(QUESTIONS), 7, 4))
    counts[:, :, TARGETS] = 0.5 + 0.1 * rng.random((30, len(QUESTIONS), 4))
    counts[:, :, BY_POSITION] = 0.1
    counts[:, :, BOTH] = 0  # no rivals
    among = np.zeros((len(QUESTIONS), 4), bool)
    among[2, 1] = True
    one = shown_cells(counts, POSITION, among)
    assert np.argwhere(one.shown).tolist() == [[2, 1]]
    assert one.p[2, 1] == pytest.approx(1 / 20_000)  # one test: Holm's correction changes nothing
    assert not shown_cells(counts, KIND).shown.any()


def test_pairs_of_a_text() -> None:
    ids = [0, 5, 6, 7, 5, 8, 9, 7]
    annotations = [
        TokenAnnotation("antecedent", (3,), ((1,),), "she"),
        TokenAnnotation("antecedent", (6, 7), ((4,), (2,)), "they"),
        TokenAnnotation("antecedent", (5,), ((7,),), "it"),  # it stands before its target
        TokenAnnotation("subject", (2,), ((1,),), ""),
        TokenAnnotation("copy", (4,), ((4,), (1,)), ""),
    ]
    asked = dict(zip(QUESTIONS, asked_pairs(annotations, ids), strict=True))
    one = asked["antecedent", AT]
    assert one.queries.tolist() == [3, 6]
    assert one.targets.T.tolist() == [[3, 1], [6, 2], [6, 4]]
    # 1 is the word 5, as 4 is, so it is no rival of the query 6; 4 is not seen by the query 3
    assert one.rivals.T.tolist() == [[3, 2]]
    assert asked["antecedent", BEFORE].targets.T.tolist() == [[2, 1], [5, 2], [5, 4]]
    assert asked["subject", BEFORE].targets.T.tolist() == [[1, 1]]  # the query itself is the target
    assert asked["copy", AT].targets.T.tolist() == [[4, 1]]  # and not at its own place
    assert len(asked["subject", AT].on(2).queries) == 0
    assert one.on(4).queries.tolist() == [3]
    mixed = one.exchanged(np.random.default_rng(0))
    assert mixed.queries.tolist() == [3]
    assert mixed.targets.T.tolist() == [[3, 2]]


def test_what_position_predicts_is_a_mean_over_other_queries() -> None:
    texts = [*planted(3, 2**32)]
    expected = Expected(5)
    for pattern, asked in texts:
        expected.count(pattern, asked)
    number = QUESTIONS.index(("subject", AT))
    mass, room = np.zeros((2, 5, len(ROWS), len(DISTANCES)))
    for pattern, asked in texts:
        for query in range(pattern.shape[1]):
            if query in asked[number].queries:
                continue
            row = class_of(ROWS, np.array(query))
            for key in range(1, query + 1):
                cell = row, class_of(DISTANCES, np.array(query - key))
                mass[:, *cell] += pattern[:, query, key]
                room[:, *cell] += pattern[:, query].sum(1)
    by_position = expected.by_position()[number]
    assert np.allclose(by_position[room > 0], mass[room > 0] / room[room > 0])
    pattern, asked = texts[0]
    counts = text_counts(pattern, asked, expected.by_position())[number]
    pairs = asked[number].targets.T.tolist()
    off = pattern.sum(2)
    assert np.allclose(counts[TARGETS], sum(pattern[:, q, k] for q, k in pairs))
    guess = sum(
        off[:, q]
        * by_position[:, class_of(ROWS, np.array(q)), class_of(DISTANCES, np.array(q - k))]
        for q, k in pairs
    )
    assert np.allclose(counts[BY_POSITION], guess)
    assert np.allclose(counts[WHOLE], sum(off[:, q] for q in asked[number].queries))
    assert np.allclose(counts[OF_ALL], off.sum(1))
    split = np.zeros((3, 5))
    for query in np.unique(asked[number].rivals[0]).tolist():
        sides = [
            [k for q, k in side.T.tolist() if q == query]
            for side in (asked[number].targets, asked[number].rivals)
        ]
        mass = [pattern[:, query, keys].sum(1) for keys in sides]
        place = class_of(ROWS, np.array(query))
        near = [
            by_position[:, place, class_of(DISTANCES, query - np.array(keys))].sum(1)
            for keys in sides
        ]
        split += [mass[0], sum(mass) * near[0] / np.maximum(sum(near), 1e-300), sum(mass)]
    assert np.allclose(counts[[PICKED, BY_KIND, BOTH]], split)


def test_names_are_those_of_the_package() -> None:
    rules = {rule.name for rule in declared_rules()} | {one.rule.name for one in PLACE_SETS}
    roles = {role.id for role in ROLES} | {COREFERENCE.id}
    kinds = {kind.words for kind in QUERY_KINDS}
    assert {*RULES} <= rules
    assert all(stated_hypothesis(f"L0H0={claim}").at for claim in AT_QUERIES)
    assert {*SCORES} | {need.metric for need in COREFERENCE.needs} <= {*METRICS}
    for name in EXACT:
        assert name.relation in RELATIONS
        assert {*name.places} <= {AT, BEFORE}
        assert {*name.rules, *name.keys} <= rules
        assert {*name.line_keys} <= {*rules, NEXT_COPY.name}
        assert {*name.lines} <= {*judged_kinds()}
        assert {*name.queries} <= kinds
        assert {*name.roles} <= roles
        assert name.rules or name.keys or name.roles or name.limited or name.lines
        assert bool(name.keys) <= bool(name.queries)
    decided = {role.id for role in (*ROLES, COREFERENCE) for n in role.needs if n.metric in SCORES}
    assert {role for name in EXACT for role in name.roles} <= decided
    assert {*LOOSE} == {*RELATIONS} <= {*ANNOTATED}
    assert {rule for every in LOOSE.values() for rule in every} <= rules
    assert "Alice" in KINDS["person"]


def test_what_an_entry_names() -> None:
    assert named_exactly(["open_quote", "", 0.1, []]) == {("mark", AT), ("mark", BEFORE)}
    assert named_exactly(["open_quote", "names", 0.1, []]) == set()
    assert named_exactly(["last_quote", "delimiters", 0.1, []]) == {("mark", BEFORE)}
    assert named_exactly(["names", "", 0.1, []]) == set()
    assert named_exactly(["names", "possessives", 0.1, []]) == {("antecedent", AT)}
    assert ("mark", AT) in named_loosely(["open_quote", "names", 0.1, []])
    assert {x for x, _ in named_loosely(["favoured", "", 0.1, [' "', "the"]])} == {"mark"}
    assert {x for x, _ in named_loosely(["favoured", "", 0.1, [" Alice"]])} >= {"owner", "speaker"}
    assert named_loosely(["favoured", "", 0.1, [" the", ' "']]) == set()
    assert named_loosely(["previous", "", 0.9, []]) == set()


def test_what_a_line_names() -> None:
    marks = [["open_quote", x, 0.5, 0.0] for x in ("quotation marks", "closing quotation marks")]
    assert [*map(named_by_line, marks)] == [{("mark", AT)}] * 2
    assert named_by_line(["last_quote", "before closing quotation marks", 0.5, 0.0]) == {
        ("mark", BEFORE)
    }
    assert named_by_line(["open_quote", "names", 0.5, 0.0]) == set()
    assert named_by_line(["names", "before names", 0.5, 0.0]) == {("mention", BEFORE)}
    assert named_by_line(["names", "names", 0.5, 0.0]) == {("mention", AT)}


def small() -> dict:
    """Three heads: one that is named rightly, one wrongly, and one that is missed."""
    rows = [
        {"head": "L0H0", "relation": "mark", "place": BEFORE, "true": True},
        {"head": "L0H0", "relation": "copy", "place": AT, "true": False},
        {"head": "L0H2", "relation": "owner", "place": AT, "true": True},
    ]
    heads = [f"L0H{head}" for head in range(3)]
    questions = {" ".join(x): {"queries": 1.0, "shares": [0.2, 0.0, 0.1]} for x in QUESTIONS}
    return {
        "truth": {"rows": rows, "heads": heads, "questions": questions},
        "entries": {
            "L0H0": [["open_quote", "", 0.1, []]],
            "L0H1": [["last_quote", "quotation marks", 0.1, []]],
            "L0H2": [["names", "", 0.1, []]],
        },
        "lines": {
            "L0H0": [["open_quote", "before closing quotation marks", 0.5, 0.0]],
            "L0H1": [["names", "names", 0.5, 0.0]],
            "L0H2": [],
        },
        "roles": {"heads": {"L0H0": [], "L0H1": [], "L0H2": ["syntax"]}},
        "verdicts": {rule: {head: ["N", 0.0] for head in heads} for rule in RULES}
        | {"induction": {"L0H0": ["N", 0.0], "L0H1": ["P", 0.2], "L0H2": ["O", None]}},
        "limited": {rule: {head: ["N", 0.0] for head in heads} for rule in AT_QUERIES},
    }


def test_precision_and_recall_are_counted_over_pairs() -> None:
    rows = {source: counts for source, *counts in agreement_rows(small())}
    assert rows[LISTS] == [2, 1, 1, 2, pytest.approx(1 / 3)]  # marks of H0 and H1
    assert rows[HOLDS][:2] == [0, 0]
    assert rows[IN_PART][:4] == [1, 0, 1, 2]
    assert rows[BY_LINE][:4] == [2, 1, 1, 2]
    assert rows[ANY][:4] == [5, 1, 1, 2]  # of owners nothing is an exact name
    assert rows[LOOSELY][1:4] == [2, 2, 2]
    missed = {row["head"]: row for row in pair_rows(small(), True)}
    assert missed["L0H2"]["named"] == []
    assert not missed["L0H2"]["nameable"]
    assert missed["L0H2"]["entries"] == [["names", "", 0.1, []]]
    assert missed["L0H0"]["named"] == [LISTS, BY_LINE]
    assert [(row["head"], row["relation"]) for row in pair_rows(small(), False)] == [
        ("L0H2", "subject"),
        ("L0H1", "mark"),
        ("L0H1", "copy"),
        ("L0H1", "mention"),
    ]


def test_the_page_states_what_was_measured() -> None:
    kept = json.loads((FOLDER / "stories_truth.json").read_text(encoding="utf-8"))
    assert stories_truth_page(kept) == (FOLDER / "stories_truth.md").read_text(encoding="utf-8")
    assert {*kept["verdicts"]} == {*RULES}
    assert len(kept["truth"]["heads"]) * len(RULES) == sum(map(len, kept["verdicts"].values()))
