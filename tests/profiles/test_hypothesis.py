"""Forms of a hypothesis about a head, and what is refused, each with its reason."""

from __future__ import annotations

import json
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profiles.planted_rows import documents
from profiles.test_planted import copies, induction, previous

import interp
from interp.core.errors import InterpError, OptionError, UnknownName
from interp.profiles import hypothesis as forms
from interp.profiles.hypothesis import Hypothesis, KeyClaim, require_sense
from interp.profiles.hypothesis_forms import read_hypothesis
from interp.profiles.reading import TokenReader
from interp.profiles.rules import KeyRule

TEXT, OTHER = documents(2, 24, seed=4).ids
QUERIES = np.arange(2, 24)
FUNCTIONS = """
import numpy as np

def copies(query, key, tokens):
    return (tokens[key] == tokens[query]) & (key < query)

def pattern(ids):
    n = len(ids)
    return np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
"""
TABLES = """
[[entries]]
keys = "previous"
share = 0.25

[[entries]]
keys = "duplicate_token"
queries = "names"
"""


@pytest.fixture(scope="module")
def textless() -> interp.Model:
    return interp.load("planted:noise")


@pytest.fixture(scope="module")
def worded() -> interp.Model:
    return interp.load("bundled:induction")


def features(given: Any, model: interp.Model, ids: tuple[int, ...] = TEXT) -> np.ndarray:
    said = read_hypothesis(given, model, "L0H0")
    return said.features(TokenReader(model, [ids, OTHER]).read(ids), QUERIES).numpy()


def masks(*rules: Any, ids: tuple[int, ...] = TEXT) -> np.ndarray:
    """Return the keys of every rule that no rule before it has."""
    query, key, tokens = QUERIES[:, None], np.arange(len(ids))[None], np.asarray(ids)
    left, found = np.ones((len(QUERIES), len(ids)), bool), []
    for rule in rules:
        named = rule(query, key, tokens) if rule.__code__.co_argcount > 2 else rule(query, key)
        found.append(named & left)
        left &= ~named
    return np.stack(found)


def test_a_function_a_file_and_a_name_say_the_same(textless: interp.Model, tmp_path: Path) -> None:
    path = tmp_path / "rules.py"
    path.write_text(FUNCTIONS)
    for given in (copies, f"L0H0={path}:copies", f"L0H0 = {path}:copies"):
        assert (features(given, textless) == masks(copies)).all()
    by_name = features("L0H0=duplicate_token", textless)
    assert (by_name[0] * (np.arange(24) != QUERIES[:, None]) == masks(copies)[0]).all()


def test_a_key_counts_for_the_first_entry_of_a_list(worded: interp.Model, tmp_path: Path) -> None:
    """As tables, TOML and JSON; a kind of query limits an entry to queries of this kind."""
    listed = [{"keys": previous}, {"keys": copies}, {"keys": induction}]
    assert (features(listed, worded) == masks(previous, copies, induction)).all()
    assert (features({"head": "L0H1", "entries": listed[:1]}, worded) == masks(previous)).all()
    toml, plain_json = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_text(TABLES)
    entries = [{"keys": "previous", "share": 0.25}, {"keys": "duplicate_token", "queries": "names"}]
    plain_json.write_text(json.dumps(entries))
    for path in (toml, plain_json):
        said = read_hypothesis(f"L1H3={path}", worded)
        digest = sha256(path.read_bytes()).hexdigest()[:8]
        assert (said.head, said.asked) == ("L1H3", f"L1H3={path} (sha256 {digest})")
        assert [entry.share for entry in said.entries] == [0.25, None]
        assert said.entries[1].name == "duplicate_token from names"
        reading = TokenReader(worded, [TEXT]).read(TEXT)
        named = said.features(reading, QUERIES).numpy().any(2)
        assert (named[1] <= reading.kinds["name"][QUERIES]).all()


def test_tokens_are_named_by_their_text(worded: interp.Model) -> None:
    ids = tuple(worded.tokenizer("the cat and the dog and the end of it")["input_ids"])[:24]
    ids = (*ids, *ids)[:24]
    named = features([{"tokens": ["the", "and"]}], worded, ids)[0]
    keys = np.array([worded.tokenizer.decode([x]).strip() in ("the", "and") for x in ids])
    assert keys.sum() > 4
    assert (named == keys & (np.arange(24) != QUERIES[:, None])).all()


def test_a_program_gives_log_probabilities(textless: interp.Model, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(FUNCTIONS)
    right = np.tril(np.ones((24, 24))) / np.arange(1, 25)[:, None]
    for given in (f"L0H0={path}:pattern", lambda ids: right):
        found = features(given, textless)
        assert np.exp(found[0]) == pytest.approx(right[QUERIES] + 1e-4, rel=1e-5)
    said = read_hypothesis(f"L0H0={path}:pattern", textless)
    assert "(sha256 " in said.asked
    with pytest.raises(OptionError, match="names no function; give"):
        read_hypothesis(f"L0H0={path}", textless)


def test_what_reads_tokens_after_the_query_is_refused(textless: interp.Model) -> None:
    def following(query, key, tokens):
        return tokens[key] % 2 == np.r_[tokens[1:], 0][query] % 2

    def whole(ids):
        return np.tril(np.ones((len(ids), len(ids)))) / len(ids) * (ids[-1] % 2)

    reader = TokenReader(textless, [TEXT, OTHER])
    for given in (following, whole, [{"keys": previous}, {"keys": following}]):
        said = read_hypothesis(given, textless, "L0H0")
        with pytest.raises(OptionError, match=r"changes with the tokens after it"):
            require_sense(said, reader, TEXT, OTHER, QUERIES)
    for given in (copies, induction, "L0H0=duplicate_token", previous):
        require_sense(read_hypothesis(given, textless, "L0H0"), reader, TEXT, OTHER, QUERIES)


def raising(query, key, tokens):
    raise KeyError("no such\nword")


def exiting(query, key, tokens):
    raise SystemExit(3)


def flat(query, key, tokens):
    return np.ones(7, bool)


def numbers(query, key, tokens):
    return (key < query) * 0.5


def nothing(query, key, tokens):
    return None


BAD_FUNCTIONS = [
    (raising, r"L0H0=raising: KeyError: 'no such\\nword'"),
    (exiting, "L0H0=exiting: SystemExit: 3"),
    (flat, r"shape \(7,\); expected one value per query and key, .* \(22, 24\)"),
    (numbers, "values of type float64; return True where"),
    (nothing, "values of type object; return True where"),
    (lambda ids: np.ones((3, 3)) / 3, r"shape \(3, 3\) for 24 tokens; expected .* \(24, 24\)"),
    (lambda ids: np.ones((24, 24)), "rows that are no probabilities; .* sum to 1 at most"),
    (lambda ids: -np.eye(24), "rows that are no probabilities"),
    (lambda ids: np.full((24, 24), np.nan), "rows that are no probabilities"),
    (lambda ids: "even", "it returned no array of numbers"),
    (lambda ids: [[0.5], [0.5, 0.5]], "it returned no array of numbers"),
    (lambda ids: ids[99], "IndexError"),
]


@pytest.mark.parametrize(("given", "reason"), BAD_FUNCTIONS)
def test_a_function_that_returns_something_else_is_refused(
    textless: interp.Model, given: Any, reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        features(given, textless)


def test_a_function_that_does_not_end_is_refused(
    textless: interp.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "SECONDS", 0.05)

    def slow(query, key, tokens):
        time.sleep(1)

    with pytest.raises(OptionError, match=r"it took more than 0\.05 s for one document"):
        features(slow, textless)
    with pytest.raises(OptionError, match="give a function that ends"):
        features(lambda ids: time.sleep(1), textless)


COPY = {"keys": "duplicate_token"}
BAD_LISTS = [
    ([COPY | {"share": 0.7}, {"keys": "previous", "share": 0.4}], "shares .* more than 1"),
    ([COPY | {"share": 1.5}], r"entry 1 of the list claims a share of 1\.5"),
    ([COPY | {"share": -0.1}], "a share lies between 0 and 1"),
    ([COPY | {"share": True}], "claims a share of True"),
    ([COPY | {"share": "most"}], "claims a share of 'most'"),
    ([COPY | {"share": [0.5]}], r"claims a share of \[0\.5\]"),
    ([COPY | {"share": float("nan")}], "claims a share of nan"),
    ([COPY, COPY | {"weight": 1}], "entry 2 of the list is .*weight.*; give a table with keys"),
    ([{"queries": "names"}], "entry 1 of the list is .*give a table with keys"),
    (["duplicate_token"], "entry 1 of the list is duplicate_token; give a table"),
    ([COPY] * 6, "a list has 1 to 5 entries"),
    ([], "a list has 1 to 5 entries"),
    ({"entries": "copies"}, "a list has 1 to 5 entries"),
    ([COPY | {"queries": "Names"}], "kind of queries in entry 1 of the list.*Names"),
    ([COPY | {"queries": ["names"]}], "kind of queries in entry 1 of the list"),
    ([{"keys": "no_such_rule"}], "no_such_rule"),
    ([{"keys": 5}], "5"),
    ([{"keys": "entropy"}], "entropy is not a rule"),
    ([{"tokens": "He"}], "entry 1 of the list: tokens is He; give a list of texts"),
    ([{"tokens": []}], "give a list of texts of tokens"),
    ([{"tokens": ["xyzzyx"]}], "no token of the model has the text xyzzyx"),
]


@pytest.mark.parametrize(("given", "reason"), BAD_LISTS)
def test_a_list_that_is_none_is_refused(worded: interp.Model, given: Any, reason: str) -> None:
    with pytest.raises(InterpError, match=reason):
        read_hypothesis(given, worded, "L0H0")


def test_a_list_is_named_by_its_entries(worded: interp.Model) -> None:
    said = read_hypothesis([COPY, {"tokens": ["the"], "queries": "names"}], worded, "L0H0")
    assert said.asked == f"L0H0=list: {COPY['keys']}; tokens the from names"


def test_words_need_a_tokenizer(textless: interp.Model) -> None:
    with pytest.raises(OptionError, match="the model has no tokenizer"):
        read_hypothesis([{"tokens": ["He"]}], textless, "L0H0")
    with pytest.raises(OptionError, match="no tokenizer"):
        read_hypothesis([COPY | {"queries": "names"}], textless, "L0H0")


def test_what_is_no_hypothesis_is_refused(textless: interp.Model, tmp_path: Path) -> None:
    for given in (copies, "induction", [COPY]):
        with pytest.raises(OptionError, match=r"names no head; give HEAD=RULE"):
            read_hypothesis(given, textless)
    with pytest.raises(OptionError, match="is a sentence; give a language model that reads it"):
        read_hypothesis("L0H0=it attends to owners of things", textless)
    with pytest.raises(UnknownName, match="inductoin"):
        read_hypothesis("L0H0=inductoin", textless)
    with pytest.raises(InterpError):
        read_hypothesis(5, textless, "L0H0")
    broken, scalar, rules = (tmp_path / name for name in ("a.toml", "a.json", "rules.py"))
    broken.write_text("[[entries]\nkeys = ")
    scalar.write_text("5")
    rules.write_text(FUNCTIONS)
    with pytest.raises(OptionError, match=r"a\.toml cannot be read"):
        read_hypothesis(f"L0H0={broken}", textless)
    with pytest.raises(OptionError, match=r"gone\.toml cannot be read"):
        read_hypothesis(f"L0H0={tmp_path / 'gone.toml'}", textless)
    with pytest.raises(InterpError):
        read_hypothesis(f"L0H0={scalar}", textless)
    with pytest.raises(OptionError, match=r"gone\.py does not exist"):
        read_hypothesis(f"L0H0={tmp_path / 'gone.py'}:copies", textless)
    with pytest.raises(OptionError, match="defines no function owners"):
        read_hypothesis(f"L0H0={rules}:owners", textless)
    broken.write_text("x = 1\n" * 200_000)
    with pytest.raises(OptionError, match="has more than 1000000 bytes"):
        read_hypothesis(f"L0H0={broken}", textless)


def test_a_function_cannot_change_the_document(textless: interp.Model) -> None:
    def writing(query, key, tokens):
        tokens[0] = 5
        return key < query

    def unlocking(query, key, tokens):
        tokens.setflags(write=True)
        return writing(query, key, tokens)

    reading = TokenReader(textless, [TEXT, OTHER]).read(TEXT)
    for given in (writing, unlocking):
        with pytest.raises(OptionError, match=r"ValueError: .*(read-only|WRITEABLE)"):
            read_hypothesis(given, textless, "L0H0").features(reading, QUERIES)
    assert reading.tokens.tolist() == [*TEXT]
    reading.tokens[0] = 5  # what others read is not locked


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("L0H0=it attends to owners", "is a sentence"),
        ("L0H0=inductoin", "unknown rule 'inductoin'"),
        ("induction", "names no head"),
        ("L0H0=gone.toml", "cannot be read"),
        ("L0H0=gone.py:rule", "does not exist"),
        ("L0H0=task:inductoin", "unknown contrast task 'inductoin'"),
        ("L0H0+L0=task:induction", "L0"),
        ({"head": "L0H0", "entries": [COPY | {"share": 2}]}, "a share lies between 0 and 1"),
        ({"head": "L0H0", "entries": [{"tokens": "He"}]}, "give a list of texts of tokens"),
    ],
)
def test_a_malformed_hypothesis_is_refused_before_a_model_is_loaded(
    given: Any, reason: str
) -> None:
    with pytest.raises(InterpError, match=reason):
        interp.judge("planted:nosuch", given)
    with pytest.raises(InterpError, match="unknown planted model"):
        interp.judge("planted:nosuch", "L0H0=induction")


def test_a_hypothesis_made_by_hand_is_taken_as_it_is(textless: interp.Model) -> None:
    rule = KeyRule("mine", "", lambda query, key, text: key < query, positional=True)
    said = Hypothesis("L0H1", "by hand", (KeyClaim(rule),))
    assert read_hypothesis(said, textless) is said
