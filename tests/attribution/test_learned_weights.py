"""Learned head weights: planted coefficients, held-out texts, a null, files and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import interp
from interp.attribution import attribute, learn_head_weights
from interp.attribution.example import Example
from interp.attribution.learned_weights import _Ridge, _Text, head_attention
from interp.bundled.deceive_text import sentences
from interp.core.errors import OptionError, PromptError, StoreError

SAID = sentences(70_000, 24)
TARGETS = [f"token:{s.right}|{s.wrong}" for s in SAID]


@pytest.fixture(scope="module")
def hiding_model():
    return interp.load("bundled:deceive")


@pytest.fixture(scope="module")
def weights_of_heads(hiding_model):
    return learn_head_weights(hiding_model, [s.text for s in SAID], TARGETS, n_ablations=24)


def made(weights: np.ndarray, texts: int, noise: float, seed: int) -> list[_Text]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(texts):
        x = rng.random((16, len(weights)))
        own = weights + noise * rng.normal(size=len(weights))  # texts differ, as clusters do
        found.append(_Text(x, x @ own))
    return found


def test_planted_coefficients_come_back_within_their_errors() -> None:
    true = np.array([3.0, 0, -2, 0, 0, 1])
    outside = []
    for seed in range(40):
        fit = _Ridge(made(true, 12, 0.4, seed), [str(i) for i in range(12)])
        weights, errors = fit.weights(1e-4), fit.jackknife(1e-4)
        outside.append(np.abs(weights - true) > 2.2 * errors)  # t quantile, 11 degrees
    assert 0.02 < np.mean(outside) < 0.1
    assert np.abs(weights - true).max() < 0.8


def test_the_ridge_is_that_of_the_normal_equations() -> None:
    texts = made(np.array([1.0, 2, 3]), 5, 1.0, 7)
    fit = _Ridge(texts, list("aabbc"))
    x = np.concatenate([t.features for t in texts])
    y = np.concatenate([t.changes for t in texts])
    penalty = 0.1 * np.trace(x.T @ x) / 3
    rows = np.vstack([x, np.sqrt(penalty) * np.eye(3)])
    want = np.linalg.lstsq(rows, np.concatenate([y, np.zeros(3)]), rcond=None)[0]
    np.testing.assert_allclose(fit.weights(0.1), want, atol=1e-10)
    assert len(fit.gram) == 3


def test_the_penalty_is_chosen_on_texts_that_are_left_out() -> None:
    rng = np.random.default_rng(0)
    nothing = [_Text(t.features, rng.normal(size=16)) for t in made(np.zeros(6), 6, 1.0, 2)]
    fit = _Ridge(nothing, [str(i) for i in range(6)])
    assert fit.best_penalty() >= 1  # noise alone: the more it is shrunk the better
    planted = _Ridge(made(np.array([3.0, 0, -2]), 6, 0.0, 3), [str(i) for i in range(6)])
    assert planted.best_penalty() == 1e-4


def test_learned_weights_predict_held_out_texts_better_than_equal_ones(weights_of_heads) -> None:
    frame = weights_of_heads.held_out.to_pandas().set_index("weights")
    assert frame.loc["learned", "low"] > frame.loc["learned", "null"]
    apart = weights_of_heads.held_out.per_prompt
    gain = apart[0] - apart[1]
    assert gain.mean() > 2 * gain.std(ddof=1) / len(gain) ** 0.5
    assert weights_of_heads.n[0] + apart.shape[1] == len(SAID)


def test_shuffled_targets_leave_nothing_to_learn(hiding_model) -> None:
    """Changes that belong to other texts: held-out correlations are near those of the null."""
    rng = np.random.default_rng(1)
    texts = made(np.zeros(6), 16, 0.0, 3)
    for t in texts:
        t.changes = rng.normal(size=16)
    fit = _Ridge(texts[:8], list("abcdefgh"))
    weights = fit.weights(fit.best_penalty())
    from interp.attribution.learned_weights import _rank

    found = [_rank(t, weights) for t in texts[8:]]
    assert abs(np.mean(found)) < 3 * np.std(found, ddof=1) / 8**0.5


def test_a_file_of_weights_scores_tokens(weights_of_heads, hiding_model, tmp_path, loaded) -> None:
    path = tmp_path / "weights.json"
    weights_of_heads.save(path)
    example = Example(hiding_model, SAID[0].text, TARGETS[0])
    attention, names = head_attention(example)
    assert len(names) == len(weights_of_heads.score)
    np.testing.assert_allclose(attention.sum(1), 1, atol=1e-5)
    found = attribute(
        hiding_model, SAID[0].text, "learned_attention", TARGETS[0], weights=str(path)
    )
    np.testing.assert_allclose(found.scores, weights_of_heads.score @ attention, atol=1e-9)
    replace(weights_of_heads, kind="Other").save(tmp_path / "other.json")
    with pytest.raises(StoreError, match="of the kind Other"):
        attribute(hiding_model, [[5, 6]], "learned_attention", weights=str(tmp_path / "other.json"))
    with pytest.raises(OptionError, match="learn weights on this model"):
        attribute(loaded("llama"), [[5, 6, 7]], "learned_attention", weights=str(path))


def test_wrong_arguments(hiding_model) -> None:
    texts = [s.text for s in SAID[:4]]
    for given, options, error, line in (
        (texts[:3], {}, OptionError, "at least 4 texts, not 3"),
        (texts, {"share": 1.0}, OptionError, "shares between 0 and 1"),
        (texts, {"clusters": ["a"] * 4}, OptionError, "1 clusters of texts"),
        (texts, {"clusters": ["a"]}, OptionError, "1 cluster labels for 4 texts"),
        (texts, {"span": 99}, PromptError, "text 1 has 1 span"),
    ):
        with pytest.raises(error, match=line):
            learn_head_weights(hiding_model, given, "she|he", **options)


def test_the_command_writes_weights_for_the_method(run, tmp_path) -> None:
    file, out = tmp_path / "texts.txt", tmp_path / "weights.json"
    file.write_text("".join(s.text + "\n" for s in SAID[:8]))
    done = run(
        "attribute",
        "head-weights",
        "bundled:deceive",
        "--file",
        file,
        "-t",
        "she|he",
        "-o",
        out,
        "-q",
    )
    assert done.exit_code == 0, done.output
    assert "held-out texts" in done.output
    done = run(
        "attribute",
        "bundled:deceive",
        "--text",
        SAID[9].text,
        "-t",
        "she|he",
        "-m",
        f"learned_attention:weights={out}",
        "-q",
    )
    assert done.exit_code == 0, done.output
    assert "learned on 4 texts" in done.output
