"""Verdicts on what is said of heads whose behaviour is known, and their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from profiles.planted_rows import documents, elsewhere, even, mixture, on, plant
from profiles.test_list_calibration import random_model
from profiles.test_planted import copies, induction, previous
from sampled import sampled
from scipy.optimize import minimize

import interp
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.prompts import Prompts
from interp.profiles import claim_fit, first_look
from interp.profiles.corpus import DocumentCorpus, sample_corpus
from interp.profiles.dealt import WORDS
from interp.profiles.log_linear import RIDGE
from interp.profiles.verdict import HOLDS, IN_PART, NOT, OPEN

SIZE: dict[str, Any] = {"n_documents": 64, "n_queries": 8, "max_length": 32}
DOCUMENTS = [*documents(96, 32, seed=1).ids]


def before_copies(query, key, tokens):
    """Attends to the token before an earlier copy: the wrong side."""
    return (key < query - 1) & (np.r_[tokens[1:], -1][key] == tokens[query])


def two_after(query, key, tokens):
    """Attends two tokens after an earlier copy: off by one."""
    return (key >= 2) & (key <= query) & (tokens[key - 2] == tokens[query])


def two_back(query, key):
    """Attends to the token before the previous one: off by one."""
    return key == query - 2


def by_half(one: Callable, other: Callable) -> Callable:
    """Return a head that is one thing in half of the documents and another in the rest."""
    return lambda window: (one if window.ids[1] % 2 else other)(window)


def after_copies(ids):
    """Return the pattern of an induction head."""
    query, key = np.arange(len(ids))[:, None], np.arange(len(ids))[None]
    free = (key <= query) & (key > 0)
    mask = free & induction(query, key, np.array(ids))
    named, rest = (x / np.maximum(x.sum(1, keepdims=True), 1) for x in (mask, free))
    return 0.9 * named + 0.1 * rest


def evenly(ids):
    """Return even attention to all earlier tokens."""
    return np.tril(np.ones((len(ids), len(ids)))) / np.arange(1, len(ids) + 1)[:, None]


AFTER, BEFORE = mixture((0.9, induction)), mixture((0.9, previous))
HEADS = [AFTER, BEFORE, mixture((0.6, copies)), by_half(AFTER, elsewhere)]
LISTED = [{"keys": "previous", "share": 0.4}, {"keys": "duplicate_token"}]


@pytest.fixture(scope="module")
def noise_model() -> interp.Model:
    return interp.load("planted:noise")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable:
    def heads(rows: Sequence[Callable]) -> None:
        plant(monkeypatch, rows)
        monkeypatch.setattr(claim_fit, "read_rows", first_look.read_rows)

    return heads


@pytest.fixture
def verdict_on(tmp_path: Path, noise_model: interp.Model) -> Callable:
    """Judge with a ledger of one's own, so that every question is a first one."""

    def ask(given: Any, head: str = "L0H0", corpus: Any = DOCUMENTS, **options: Any) -> Any:
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        options = {"model": noise_model, "questions": folder, **SIZE, **options}
        model = options.pop("model")
        return interp.judge(model, given, corpus, head=head, **options)

    return ask


def numbers(found: Any) -> dict[str, float]:
    return dict(zip(found.number, found.score, strict=True))


def test_right_holds_and_nearly_right_does_not(planted: Callable, verdict_on: Callable) -> None:
    planted(HEADS)
    for head, given, word in (
        ("L0H0", induction, HOLDS),
        ("L0H0", after_copies, HOLDS),
        ("L0H0", two_after, NOT),
        ("L0H0", before_copies, NOT),
        ("L0H1", "previous", HOLDS),
        ("L0H1", two_back, NOT),
        ("L0H2", [{"keys": "duplicate_token", "share": 0.6}], HOLDS),
        ("L0H2", induction, NOT),
        ("L0H3", induction, IN_PART),
    ):
        found = verdict_on(given, head)
        assert found.facts["verdict"] == word, (head, given, found.facts["p"])
        assert (found.facts["question"], found.facts["head"]) == (1, head)


@pytest.mark.parametrize("draw", sampled(range(4)))
def test_verdicts_are_the_same_on_other_documents(
    planted: Callable, verdict_on: Callable, tmp_path: Path, draw: int
) -> None:
    """A head right on half of the documents, whatever it does on the others, never holds."""
    half_even, both = by_half(BEFORE, even), mixture((0.4, previous), (0.4, copies))
    corpus, toml = [*documents(96, 32, seed=20 + draw).ids], tmp_path / "list.toml"
    toml.write_text('[[entries]]\nkeys = "previous"\n[[entries]]\nkeys = "duplicate_token"\n')
    for rows, cases in (
        (HEADS, (("L0H0", induction, True), ("L0H0", after_copies, True), ("L0H3", induction, 0))),
        (HEADS, (("L0H1", previous, True), ("L0H2", copies, True), ("L0H3", after_copies, 0))),
        ([both, half_even, elsewhere], (("L0H0", LISTED, True), ("L0H0", f"L0H0={toml}", True))),
        ([both, half_even, elsewhere], (("L0H1", previous, False), ("L0H2", previous, False))),
        ([both, half_even, elsewhere], (("L0H2", copies, False), ("L0H0", two_back, False))),
    ):
        planted(rows)
        for head, given, holds in cases:
            word = verdict_on(given, head, corpus, seed=draw).facts["verdict"]
            assert (word == HOLDS) == bool(holds), (head, given, word)


@pytest.mark.parametrize(
    ("name", "head", "right", "wrong"),
    [
        ("induction", "L1H0", "induction", "duplicate_token"),
        ("duplicate_token", "L0H3", "duplicate_token", "induction"),
        ("positional", "L0H1", "previous_token", "two_back"),
    ],
)
def test_heads_of_models_with_weights(
    verdict_on: Callable, name: str, head: str, right: str, wrong: str
) -> None:
    model, corpus = interp.load(f"planted:{name}"), [*documents(96, 32, 3, vocab=40).ids]
    found = verdict_on(f"{head}={right}", model=model, corpus=corpus)
    assert found.facts["verdict"] == HOLDS
    given = two_back if wrong == "two_back" else wrong
    assert verdict_on(given, head, corpus, model=model).facts["verdict"] == NOT


def test_numbers_are_those_of_a_fit_by_other_code(
    planted: Callable, verdict_on: Callable, noise_model: interp.Model
) -> None:
    """Two entries that name positions: weights of greatest likelihood, and shares."""
    row = mixture((0.4, previous), (0.4, two_back))
    planted([row])
    found = numbers(verdict_on([{"keys": previous}, {"keys": two_back}]))
    size = SIZE | {"n_documents": 96 + WORDS}
    windows = sample_corpus(DocumentCorpus(DOCUMENTS), noise_model, **size).windows

    def parts(window: Any) -> tuple[np.ndarray, ...]:
        one, two = on(window, previous) > 0, on(window, two_back) > 0
        free = even(window) > 0
        return row(window), free, np.stack([one & free, two & free & ~one])

    def nats(weights: Any, mass: np.ndarray, free: np.ndarray, keys: np.ndarray) -> float:
        logits = np.where(free, np.tensordot(weights, keys, 1), -np.inf)
        log_q = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        own = mass / mass.sum(1, keepdims=True)
        return float(np.sum(mass * (np.log(own + 1e-300) - np.where(free, log_q, 0))))

    fitted, judged = ([parts(w) for w in part] for part in (windows[:32], windows[32:96]))
    weight = sum(mass.sum() for mass, _, _ in fitted)
    ridge = 0.5 * RIDGE * weight
    best = minimize(lambda x: sum(nats(x, *p) for p in fitted) + ridge * x @ x, [1.0, 1.0]).x
    below, above = (np.array([nats(x, *p) for p in judged]) for x in (np.zeros(2), best))
    mean = (1 - above / below).clip(0, 1).mean()
    assert found["share of what is left"] == pytest.approx(mean, abs=1e-4)
    assert found["alone"] == pytest.approx(1 - above.sum() / below.sum(), abs=5e-4)
    total = sum(mass.sum() for mass, _, _ in judged)
    for at, name in enumerate(("previous", "two_back")):
        held = sum(mass[keys[at]].sum() for mass, _, keys in judged) / total
        assert found[f"attention: {name}"] == pytest.approx(held, abs=1e-5)
        flat = sum(
            (mass.sum(1) * (keys[at].sum(1) / free.sum(1))).sum() for mass, free, keys in judged
        )
        assert found[f"even attention: {name}"] == pytest.approx(flat / total, abs=1e-5)


def test_a_pattern_in_place_of_itself_restores_the_loss(verdict_on: Callable) -> None:
    model = interp.load("planted:induction")
    corpus = [(*ids, *ids[1:]) for ids in documents(96, 16, 3, vocab=40).ids]  # to be copied

    def itself(ids):
        patterns: list[torch.Tensor] = []
        site = model.sites[1]
        model.read(
            Prompts((tuple(ids),)),
            lambda at, call, _: at == site and patterns.append(call.pattern()[0, 0].detach()),
        )
        return patterns[0].double().numpy()

    found = numbers(verdict_on(itself, "L1H0", corpus, model=model))
    assert found["share of what is left"] > 0.99
    assert found["causal share"] == pytest.approx(1, abs=0.01)
    assert found["loss without the pattern"] > 0.5
    flat = numbers(verdict_on(evenly, "L1H0", corpus, model=model))
    assert flat["causal share"] == pytest.approx(0, abs=0.01)
    assert flat["loss without the pattern"] == pytest.approx(found["loss without the pattern"])


@pytest.mark.parametrize("seeds", sampled([range(4), range(4, 8)], always=[range(4)]))
def test_random_rules_of_random_models_hold_rarely(verdict_on: Callable, seeds: range) -> None:
    words = []
    for seed in seeds:
        model = interp.load(random_model(seed, 3.0))
        corpus = [*documents(96, 32, seed, vocab=512).ids]
        for number in range(5):
            a, b, c, n = np.random.default_rng([seed, number]).integers(1, 100, 4).tolist()

            def rule(query, key, tokens, *, a=a, b=b, c=c, n=2 + n % 7):
                one = (a * tokens[key] + (b * tokens[query]) * (c % 2)) % 101
                return (one % n == 0) & (key < query)

            head = f"L{number % 2}H{seed % 4}"
            words.append(verdict_on(rule, head, corpus, model=model).facts["verdict"])
    assert sum(word in (HOLDS, IN_PART) for word in words) <= 0.05 * len(words), words


@pytest.mark.parametrize("listed", [False, True])
def test_keys_that_a_head_avoids_are_not_those_that_it_attends_to(
    planted: Callable, verdict_on: Callable, listed: bool
) -> None:
    """What is left out of the rest says as much as the rest, and is the opposite of true."""

    def odd(query, key, tokens):
        return (tokens[key] % 2 == 1) & (key < query)

    def remaining(query, key, tokens):
        return (tokens[key] % 2 == 0) & (key < query)

    def opposite(ids):
        tokens, n = np.array(ids), len(ids)
        query, key = np.arange(n)[:, None], np.arange(n)[None]
        seen = (key <= query) & (key > 0)
        rows = np.where(remaining(query, key, tokens), 1.0, 0.1) * seen
        return rows / np.maximum(rows.sum(1, keepdims=True), 1e-9)

    planted([mixture((0.95, odd))])
    assert verdict_on([{"keys": odd}] if listed else odd).facts["verdict"] == HOLDS
    for given in ([{"keys": remaining}],) if listed else (remaining, opposite):
        found = verdict_on(given)
        assert found.facts["verdict"] == NOT
        assert numbers(found)["share of what is left"] < 0.05
    if listed:  # an entry that is wrong takes nothing from one that is right
        found = verdict_on([{"keys": remaining}, {"keys": odd}])
        assert found.facts["verdict"] == HOLDS


def everywhere(query, key, tokens):
    return (key <= query) & (tokens[key] >= 0)


def nowhere(query, key, tokens):
    return (key < query) & (tokens[key] < 0)


def test_what_cannot_be_judged_is_refused(verdict_on: Callable, tmp_path: Path) -> None:
    for given, reason in (
        (everywhere, "it names every key that L0H0 may see off the sink"),
        (nowhere, "it names no key that L0H0 may see"),
        (lambda query, key, tokens: tokens[key] == np.r_[tokens[1:], 0][query], "tokens after it"),
        ("L0H0=it looks back", "is a sentence"),
    ):
        with pytest.raises(OptionError, match=reason):
            verdict_on(given)
    with pytest.raises(UnknownName, match="L7H9"):
        verdict_on("L7H9=induction")
    with pytest.raises(OptionError, match="n_documents=7 is too small; give at least 8"):
        verdict_on(induction, n_documents=7)
    with pytest.raises(PromptError, match=r"at least 8 are needed"):
        verdict_on(induction, corpus=DOCUMENTS[:12])
    folder, few = tmp_path / "one", DOCUMENTS[:30]
    assert verdict_on(copies, corpus=few, questions=folder, n_documents=24).facts["question"] == 1
    with pytest.raises(PromptError, match=r"fresh documents? left .* 1 earlier question"):
        verdict_on(induction, corpus=few, questions=folder, n_documents=24)
    [path] = folder.glob("*.jsonl")
    path.write_text(path.read_text().replace(OPEN, HOLDS))
    with pytest.raises(OptionError, match="line 2: it was changed after it was written"):
        verdict_on(copies, questions=folder)


def test_a_list_that_names_every_key_in_parts_says_something(
    planted: Callable, verdict_on: Callable
) -> None:
    def rest(query, key):
        return key <= query

    planted([BEFORE])
    found = verdict_on([{"keys": previous}, {"keys": rest}])
    assert found.facts["verdict"] == HOLDS


def test_a_list_of_places_and_tokens_is_judged_beyond_its_places(
    planted: Callable, verdict_on: Callable
) -> None:
    planted([mixture((0.4, previous), (0.4, copies))])
    right = verdict_on([{"keys": previous}, {"keys": copies}])
    wrong = verdict_on([{"keys": previous}, {"keys": before_copies}])
    assert (right.facts["verdict"], wrong.facts["verdict"]) == (HOLDS, NOT)
    assert right.facts["reference"] == wrong.facts["reference"] == "position"
    assert verdict_on([{"keys": previous}]).facts["reference"] == "even"


def test_a_head_on_the_sink_cannot_be_judged(planted: Callable, verdict_on: Callable) -> None:
    planted([mixture((0.6, copies), sink=0.99)])
    found = verdict_on(copies)
    assert found.facts["verdict"] == OPEN
    assert np.isnan(numbers(found)["share of what is left"])
