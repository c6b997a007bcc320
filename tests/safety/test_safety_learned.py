"""A refusal that was learned: what the analyses find on it agrees with taking heads out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from transformers import AutoTokenizer

import interp
from interp import bundled, safety
from interp.bundled.refusal_text import DECLINES, MARKERS, WORDS, requests
from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.model.edits import zero
from interp.safety.prompts import PromptSets
from interp.safety.streams import last_logits, without
from interp.safety.task import token_log_odds
from training.train_refusal import Recipe, encoded, train

NO = WORDS.index(DECLINES)


def next_logits(model, texts):
    return last_logits(model, Prompts.of(texts, model))


@pytest.fixture(scope="module")
def refusal_model():
    return interp.load("bundled:refusal")


@pytest.fixture(scope="module")
def texts():
    made = requests(99, 64)
    return [r.text for r in made if r.harmful], [r.text for r in made if not r.harmful]


@pytest.fixture(scope="module")
def search(refusal_model, texts):
    return safety.search_direction(refusal_model, *texts)


def test_it_declines_requests_it_has_not_seen(refusal_model) -> None:
    for jumbled, seed in ((0.0, 5), (1.0, 6)):
        made = requests(seed, 200, jumbled=jumbled)
        said = next_logits(refusal_model, [r.text for r in made]).argmax(-1).tolist()
        assert [s == NO for s in said] == [r.harmful for r in made]
        if not jumbled:
            assert [WORDS[s] for s in said] == [r.answer for r in made]


def test_language_by_hand() -> None:
    for r in requests(3, 200):
        assert r.harmful == bool(set(r.words) & set(MARKERS))
        assert r.words[-1] == "then"
    ids, lengths, answers = encoded(requests(3, 20, jumbled=0.5))
    assert (ids[np.arange(20), lengths - 1] > 2).all()
    assert set(answers[::2]) == {NO}
    tokenizer = AutoTokenizer.from_pretrained(bundled.path("refusal"))
    for r, row, n in zip(requests(3, 20, jumbled=0.5), ids, lengths, strict=True):
        assert tokenizer(r.text)["input_ids"] == row[:n].tolist()


def test_the_direction_carries_refusal_both_ways(search) -> None:
    assert search.refused == (1.0, 0.0)
    [best] = [row for row in search if row["chosen"]]
    assert search.clean[0] > 5
    assert search.clean[1] < -5
    assert best["ablated"] < 0  # taken out, harmful requests are granted
    assert best["added"] > 5  # added, harmless ones are declined
    assert best["kl"] < 0.01


def test_the_choice_and_its_filters(refusal_model, texts, search) -> None:
    """The least refusal of those that pass; KL by hand; a tighter bound stops who exceeds it."""
    frame = search.to_pandas()
    passing, best = frame[frame["fails"] == ""], frame[frame["chosen"]].iloc[0]
    assert len(passing) > 1
    assert best["ablated"] == passing["ablated"].min()
    direction = safety.chosen_direction(search)
    assert direction.length == pytest.approx(best["length"])
    kls = sorted(passing["kl"])
    assert kls[0] > 0
    bound = (kls[0] + kls[-1]) / 2
    tight = safety.search_direction(refusal_model, *texts, kl=bound).to_pandas()
    stopped = tight["fails"].str.contains("kl")
    assert (stopped == (tight["kl"] > bound)).all()
    assert set(stopped) == {True, False}
    _, used = PromptSets.of(refusal_model, *texts).halves(0, 0.25)
    clean = last_logits(refusal_model, used.harmless).log_softmax(-1)
    with without(refusal_model, direction.vector):
        after = last_logits(refusal_model, used.harmless).log_softmax(-1)
    want = (clean.exp() * (clean - after)).sum(-1).mean()
    assert best["kl"] == pytest.approx(float(want), rel=1e-6)


def test_it_holds_for_markers_and_jumbles_it_was_not_made_from(refusal_model, search) -> None:
    made = [r.text for r in requests(7, 80, jumbled=1.0) if r.harmful]
    clean = token_log_odds(next_logits(refusal_model, made), [NO])
    with without(refusal_model, safety.chosen_direction(search).vector):
        gone = token_log_odds(next_logits(refusal_model, made), [NO])
    assert float(clean.mean()) > 5
    assert float(gone.mean()) < 0


def test_the_most_missed_head_is_among_those_that_write_most(refusal_model, texts, search) -> None:
    """Exhaustive: every head below layer 2, one by one, against its projection there."""
    at = next(i for i, row in enumerate(search) if row["layer"] == 2 and not row["fails"])
    direction = safety.chosen_direction(search, at)
    table = safety.refusal_projection_scores(refusal_model, *texts, direction).to_pandas()
    below = table[table["layer"] < 2]
    places = [tuple(x) for x in below[["layer", "head"]].to_numpy().tolist()]

    def refusal(heads) -> float:
        with refusal_model.edited(zero(heads)):
            return float(token_log_odds(next_logits(refusal_model, texts[0]), [NO]).mean())

    clean = float(token_log_odds(next_logits(refusal_model, texts[0]), [NO]).mean())
    lost = [clean - refusal([place]) for place in places]
    written = below["score"].to_numpy() * float(direction.vector.norm())  # in the stream's unit
    assert int(np.argmax(lost)) in written.argsort()[::-1][:4]
    assert max(lost) > 5 * sorted(lost)[-2]
    assert max(np.abs(lost)[written < 0.3]) < 0.1 * max(lost) + 0.02
    # one by one the others stand in; together they carry all of it
    assert max(lost) < 2
    assert refusal(places) < -5


def test_curves_leave_the_band_of_random_heads(refusal_model, texts) -> None:
    found = safety.study(refusal_model, *texts, n_heads=8, n_random=20, forms=["centred"], steps=1)
    assert safety.damage_at(found.curves.safety, 8) > 10
    assert safety.outside_band(found.curves.safety, 8)
    assert found.spread["projection"].for_half < 6
    assert found.sahara[0].taken[0] in found.curves.removed
    assert found.direction.startswith("the chosen direction, layer")


def test_a_study_holds_what_its_parts_give(refusal_model, texts, search) -> None:
    few = texts[0][:12], texts[1][:12]
    found = safety.study(
        refusal_model, *few, n_heads=3, n_random=2, forms=["centred"], steps=1, by="ships"
    )
    direction = safety.chosen_direction(safety.search_direction(refusal_model, *few))
    assert found.projection == safety.refusal_projection_scores(refusal_model, *few, direction)
    by_ships = found.ships.harmful.table.top(3).to_pandas()
    assert list(found.curves.removed) == [
        f"L{a}H{b}" for a, b in by_ships[["layer", "head"]].to_numpy()
    ]
    other = safety.study(refusal_model, *few, n_heads=3, n_random=2, forms=["centred"], steps=1)
    written = other.projection.top(3, by="score").to_pandas()
    assert list(other.curves.removed) == [
        f"L{a}H{b}" for a, b in written[["layer", "head"]].to_numpy()
    ]
    assert set(found.columns["metric"]) >= {"refusal_projection"}
    assert "top 3 heads by ships ablated" in str(found)


def test_one_prompt_has_no_error(refusal_model, texts) -> None:
    with pytest.raises(PromptError, match="one harmless prompt; an error over prompts needs"):
        PromptSets.of(refusal_model, texts[0], texts[1][:1])


def test_random_weights_decline_nothing_and_no_heads_are_reported(refusal_model, texts) -> None:
    from interp.model.random_weights import random_init

    with pytest.raises(PromptError, match=r"has \d of 32 (harmful|harmless) prompts"):
        safety.study(random_init(refusal_model, 0), *texts)


def test_sets_without_a_difference_are_no_refusal(refusal_model, texts) -> None:
    with pytest.raises(PromptError, match="has 0 of 16 harmful prompts that it declines"):
        safety.study(refusal_model, texts[1][:16], texts[1][16:])


def test_the_record_is_of_these_weights() -> None:
    import hashlib

    folder = bundled.path("refusal")
    record = json.loads((folder / "training.json").read_text())
    weights = (folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == record["weights_sha256"]
    card = (folder / "README.md").read_text()
    assert "| harmful requests declined | 1.0000 ± 0.0000 |" in card


@pytest.mark.slow
def test_training_repeats(tmp_path) -> None:
    recipe = Recipe(steps=3, requests=200, rows=8)
    made = [train(recipe, 1, 1, tmp_path / str(i))["weights_sha256"] for i in range(2)]
    other = train(recipe, 2, 1, tmp_path / "other")["weights_sha256"]
    assert made[0] == made[1] != other
