"""Probes: a planted head is found, shuffled labels are not, leaks and other models are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from probes.made_features import PLANTED, made

import interp
from interp.cli.main import main
from interp.core.errors import OptionError, PromptError, StoreError
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.probes import (
    HeadFeatures,
    HeadProbe,
    chunk_features,
    last_row_features,
    lookback_features,
    metric_features,
    output_features,
    train_probe,
)
from interp.probes.context import ContextItem
from interp.probes.features import recorded_features
from interp.probes.folds import fold_numbers, shuffled_labels
from interp.probes.linear import fit_calibrated, fit_linear
from interp.probes.result import auc_by_fold, interval_over_documents
from interp.probes.saved import ProbeMismatch


def test_a_planted_head_is_found() -> None:
    features, y, where = made(signal=1.5)
    found = train_probe(features, y.tolist(), where.tolist(), n_permutations=19, folds=3)
    assert found.scores["auc"] > 0.85
    assert found.scores["p"] == 1 / 20
    low, high = found.scores["auc_interval"]
    assert 0.5 < low < found.scores["auc"] < high
    frame = found.top(1).to_pandas()
    assert (frame["layer"][0], frame["head"][0]) == PLANTED[1:]
    assert frame["p"].to_numpy()[0] == 1 / 20
    assert 0.25 < found.scores["auc_shuffled"] < 0.7
    assert found.scores["brier"] < found.scores["brier_constant"]
    assert repr(found).startswith("made: 120 items of 30 documents, 3 folds")


def test_a_label_of_documents_is_not_found_in_what_documents_share() -> None:
    """Folds of items would find the document, and with it the label."""
    features, y, where = made(shared=5.0, documents=20, each=6)
    items = np.arange(len(y)) % 3
    leaked = np.zeros(len(y))
    for fold in range(3):
        there = items != fold
        leaked[~there] = fit_linear(features.x[there], y[there]).log_odds(features.x[~there])
    assert auc_by_fold(leaked, y, items) > 0.9
    held = train_probe(features, y.tolist(), where.tolist(), n_permutations=0, folds=3)
    assert held.scores["auc"] < 0.8
    assert held.scores["p"] is None


def test_documents_that_leak_are_refused() -> None:
    features, y, where = made(documents=6, each=2)
    with pytest.raises(OptionError, match=r"leaks between the folds \[0, 1\]"):
        train_probe(features, y.tolist(), where.tolist(), folds=[0, 1] * 6)
    same = HeadFeatures(features.x, features.places, "made", ("0", *features.items[:-1]))
    apart = ["other", *where[1:].tolist()]
    with pytest.raises(PromptError, match="is the same prompt as one of document 'other'"):
        train_probe(same, y.tolist(), apart)


def test_bad_labels_and_folds() -> None:
    features, y, where = made(documents=6, each=2)
    with pytest.raises(OptionError, match="labels of 1 classes"):
        train_probe(features, [1] * 12, where.tolist())
    with pytest.raises(OptionError, match="labels of 3 classes"):
        train_probe(features, [0, 1, 2] * 4, where.tolist())
    with pytest.raises(OptionError, match="label 1 occurs in one document only"):
        train_probe(features, (where == 3).astype(int).tolist(), where.tolist())
    with pytest.raises(OptionError, match="folds=7: give at least 2, and at most one per"):
        train_probe(features, y.tolist(), where.tolist(), folds=7)
    with pytest.raises(OptionError, match="all items are of one document"):
        train_probe(features, y.tolist(), [0] * 12)
    with pytest.raises(OptionError, match="no type occurs in two documents"):
        train_probe(features, y.tolist(), where.tolist(), types=list(range(12)), folds=2)


def test_the_rotated_fit_is_the_fit() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 50)), np.arange(20) % 2
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    other = make_pipeline(StandardScaler(), LogisticRegression(tol=1e-10, max_iter=5000)).fit(x, y)
    np.testing.assert_allclose(fit_linear(x, y).log_odds(x), other.decision_function(x), atol=5e-3)


def test_auc_and_folds_by_definition() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(1)
    y, score = np.arange(30) % 2, rng.normal(size=30).round(1)
    assert auc_by_fold(score, y, np.zeros(30, int)) == pytest.approx(roc_auc_score(y, score))
    where = np.repeat(np.arange(10), 3)
    folds = fold_numbers(where, 4, 0)
    assert all(len(set(folds[where == d])) == 1 for d in range(10))
    labels = (where % 2).astype(int)
    mixed = shuffled_labels(labels, where, rng)
    assert all(len(set(mixed[where == d])) == 1 for d in range(10))
    assert mixed.sum() == labels.sum()
    within = shuffled_labels(y, where, rng)
    assert [within[where == d].sum() for d in range(10)] == [y[where == d].sum() for d in range(10)]
    assert interval_over_documents(lambda kept: 1.0, where) == (0.025**0.1, 1.0)


def test_calibration_undoes_overconfidence() -> None:
    features, y, where = made(documents=60, signal=0.4, layers=4, d=6)
    raw = fit_linear(features.x, y, 100.0)
    calibrated = fit_calibrated(features.x, y, where, 100.0, 0)
    assert calibrated.slope < 0.5
    new, other, _ = made(documents=60, signal=0.4, layers=4, d=6, seed=1)
    losses = [
        np.mean((p - other) ** 2)
        for p in (1 / (1 + np.exp(-raw.log_odds(new.x))), calibrated.probabilities(new.x))
    ]
    assert losses[1] < losses[0]


def test_saved_and_applied(tmp_path) -> None:
    features, y, where = made(signal=1.0)
    probe = train_probe(features, y.tolist(), where.tolist(), folds=3, n_permutations=0).probe
    path = tmp_path / "probe.safetensors"
    probe.save(path)
    again = HeadProbe.load(path)
    np.testing.assert_array_equal(again.apply(features), probe.apply(features))
    other = HeadFeatures(features.x, features.places, "made", features.items, {"hash": "x"})
    with pytest.raises(ProbeMismatch, match="whose weights differ"):
        again.apply(other)
    assert len(again.apply(other, other_weights=True)) == len(y)
    with pytest.raises(ProbeMismatch, match="the probe reads made"):
        again.apply(HeadFeatures(features.x, features.places, "z", features.items))
    with pytest.raises(ProbeMismatch, match="of 8 heads"):
        again.apply(HeadFeatures(features.x[:, :3], features.places[:3], "made", features.items))
    with pytest.raises(StoreError):
        probe.save(tmp_path / "probe.safetensors" / "inside")
    path.write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    with pytest.raises(StoreError, match="does not hold a probe"):
        HeadProbe.load(path)


def test_features_of_a_model(llama_model, tmp_path) -> None:
    prompts = Prompts(((5, 6, 7, 8, 9, 5), (7, 8, 9, 5, 6), (9, 9, 8, 7)))
    last, mean = (output_features(llama_model, prompts, p) for p in ("last", "mean"))
    parts, which = chunk_features(llama_model, prompts, 2)
    np.testing.assert_allclose(parts.x[1::2], mean.x, atol=1e-6)  # the whole is the last part
    assert which.tolist() == [0, 0, 1, 1, 2, 2]
    alone = output_features(llama_model, Prompts(prompts.ids[1:2]), "last")
    np.testing.assert_allclose(alone.x[0], last.x[1], atol=1e-5)
    metrics = metric_features(llama_model, prompts, ["entropy"])
    table = interp.score(llama_model, "entropy", prompts, null="none").to_pandas()
    np.testing.assert_allclose(metrics.x.mean(0), table["score"], atol=1e-6)
    interp.record_activations(llama_model, prompts, tmp_path / "acts", ["z"])
    held = recorded_features(tmp_path / "acts")
    np.testing.assert_allclose(held.x, last.x, atol=1e-5)
    assert (held.places, held.kind, held.items) == (last.places, last.kind, last.items)
    assert held.model["hash"] == last.model["hash"]
    with pytest.raises(OptionError, match="position 'first' is not known"):
        output_features(llama_model, prompts, "first")


def test_lookback_and_last_row_are_their_definitions(llama_model) -> None:
    ids = (5, 6, 7, 8, 9, 5, 6, 9)
    found, of = lookback_features(llama_model, [ContextItem(ids, 5, ((5, 8), (6, 7)))])
    rows, _ = last_row_features(llama_model, [ContextItem(ids, 5, ((0, 2), (2, 5)))])
    cache = llama_model.capture(Prompts((ids,)), ["pattern"])
    pattern = cache["pattern", 0][0].double().numpy()
    for row in (5, 6, 7):
        old = pattern[:, row, :5].mean(-1)
        new = pattern[:, row, 5 : row + 1].mean(-1)
        if row == 6:
            np.testing.assert_allclose(found.x[1, : len(old)], old / (old + new), atol=1e-6)
    last = pattern[:, -1, :5] / pattern[:, -1, :5].sum(-1, keepdims=True)
    np.testing.assert_allclose(rows.x[1, : len(last)], last[:, 2:].mean(-1), atol=1e-6)
    assert of.tolist() == [0, 0]
    with pytest.raises(PromptError, match="the part 4 to 6 is empty or not in the response"):
        lookback_features(llama_model, [ContextItem(ids, 5, ((4, 6),))])


def test_command(tmp_path) -> None:
    rng = np.random.default_rng(0)
    lines = [
        json.dumps(
            {
                "prompt": [int(x) for x in rng.integers(1, 20, 9)] + [int(3 + i % 2)],
                "label": i % 2,
                "document": f"d{i // 2}",
            }
        )
        for i in range(24)
    ]
    path, out = tmp_path / "items.jsonl", tmp_path / "probe.safetensors"
    path.write_text("\n".join(lines))
    given = ["train", "probe", "bundled:one-layer", "--file", str(path)]
    told = CliRunner().invoke(main, [*given, "--random", "9", "-o", str(out)])
    assert told.exit_code == 0, told.output
    assert "24 items of 12 documents, 5 folds" in told.stdout
    again = ResultRows.load(out.with_suffix(".json"))
    assert again.about["items"] == 24
    assert again.probe.places == HeadProbe.load(out).places
    assert again.compare(again).to_pandas()["score"].abs().max() == 0
    told = CliRunner().invoke(
        main, ["train", "probe", "bundled:one-layer", "--file", str(path), "--load", str(out)]
    )
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout.splitlines()[0]).keys() == {"document", "p(1)"}
    told = CliRunner().invoke(
        main, ["train", "probe", "bundled:induction", "--file", str(path), "--load", str(out)]
    )
    assert told.exit_code != 0
    assert "the probe reads" in told.stderr
    path.write_text('{"prompt": " ", "label": 1}')
    told = CliRunner().invoke(main, given)
    assert "line 1: 'prompt' is not a text with words" in told.stderr


def test_without_a_file_texts_of_stories_are_read_and_other_models_need_one(tmp_path) -> None:
    out = tmp_path / "probe.safetensors"
    run = CliRunner().invoke(main, ["train", "probe", "--random", "9", "-q", "-o", str(out)])
    assert run.exit_code == 0, run.output
    found = ResultRows.load(out.with_suffix(".json"))
    assert found.scores["auc"] > 0.95
    assert found.scores["p"] == 0.1
    assert abs(found.scores["auc_shuffled"] - 0.5) < 0.1
    assert {*HeadProbe.load(out).classes} == {"man", "woman"}
    run = CliRunner().invoke(main, ["train", "probe", "bundled:one-layer"])
    assert run.exit_code != 0
    assert "give some as --file FILE" in run.output


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_the_most_common_label_may_be_either(share: float) -> None:
    features, _, where = made(signal=0.0)
    y = [int(i % 4 < 4 * share) for i in range(len(where))]
    found = train_probe(features, y, where.tolist(), n_permutations=0, folds=3)
    assert found.scores["most_common"] == 0.75
