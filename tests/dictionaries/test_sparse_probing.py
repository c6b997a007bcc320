"""Sparse probing: planted features, SAEBench's numbers on a saved case, and shuffled labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from interp.core.errors import OptionError
from interp.dictionaries import probe_features
from interp.dictionaries.dictionary import Dictionary
from interp.dictionaries.sparse_probing import fitted, sparse_probes, split_by_class


def case(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Codes in which feature 7 nearly tells the classes apart, 3 and 11 help, and others do not."""
    rng = np.random.default_rng(seed)
    labels = np.tile([0, 1], 120)
    codes = np.maximum(rng.normal(size=(240, 20)), 0)
    codes[:, 7] = np.maximum(rng.normal(size=240) + 2.0 * labels - 0.3, 0)
    codes[:, 3] = np.maximum(rng.normal(size=240) + 1.0 * labels, 0)
    codes[:, 11] = np.maximum(rng.normal(size=240) + 0.8 * (1 - labels), 0)
    return codes, labels


def test_the_planted_features_are_chosen_and_random_ones_do_worse() -> None:
    codes, labels = case()
    rng = np.random.default_rng(0)
    found = sparse_probes(codes, labels, split_by_class(labels, 0.5, rng), (1, 3, 5), rng)
    assert found["top 1"][1].tolist() == [7]
    assert set(found["top 3"][1].tolist()) == {7, 3, 11}
    accuracy = {name: right.mean() for name, (right, _, _) in found.items()}
    assert 0.75 < accuracy["top 1"] <= accuracy["top 3"]
    assert found["top 1"][2] < accuracy["top 1"] - 0.15  # random features


def test_accuracies_are_those_of_saebench_on_a_saved_case() -> None:
    """The second half is held out. Numbers by `get_top_k_mean_diff_mask` and
    `train_sklearn_probe` of sae-bench 0.6.0 on these codes, in float32."""
    codes, labels = case()
    codes = codes.astype(np.float32)
    test = np.arange(240) >= 120
    found = sparse_probes(codes, labels, test, (1, 2, 5), np.random.default_rng(0))
    for number, accuracy in SAEBENCH.items():
        right, top, _ = found[f"top {number}"]
        assert right.mean() == pytest.approx(accuracy, abs=1e-9)
        difference = codes[:120][labels[:120] == 1].mean(0) - codes[:120][labels[:120] == 0].mean(0)
        assert set(top.tolist()) == set(np.abs(difference).argsort()[-number:].tolist())
        own = LogisticRegression(max_iter=1000).fit(codes[:120][:, top], labels[:120])
        assert own.score(codes[120:][:, top], labels[120:]) == pytest.approx(accuracy)


SAEBENCH = {1: 103 / 120, 2: 104 / 120, 5: 105 / 120}


def test_labels_that_mean_nothing_are_told_apart_at_chance() -> None:
    codes, labels = case()
    each = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        shuffled = rng.permutation(labels)
        test = split_by_class(shuffled, 0.5, rng)
        each.append(fitted(codes[:, :5], shuffled, test).mean())
    assert abs(np.mean(each) - 0.5) < 4 * np.std(each) / 20**0.5 + 0.02


def _texts() -> tuple[list[list[int]], list[int]]:
    rng = np.random.default_rng(0)
    labels = [0, 1] * 20
    pools = np.arange(10, 40), np.arange(40, 70)
    return [[1, *rng.choice(pools[x], 8).tolist()] for x in labels], labels


def test_classes_of_texts_are_told_apart_by_a_feature_of_their_tokens(bundled_induction) -> None:
    """A dictionary whose first feature is the direction between the classes' embeddings."""
    model = bundled_induction
    table = model.module.get_input_embeddings().weight.detach()
    direction = table[40:70].mean(0) - table[10:40].mean(0)
    direction = direction / direction.norm()
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(16, len(direction), generator=draw)
    rows = rows - (rows @ direction)[:, None] * direction
    encoder = torch.cat([direction[None], rows / rows.norm(dim=1, keepdim=True)])
    middle = float(table[10:70].mean(0) @ direction)
    bias = torch.cat([torch.tensor([-middle]), torch.zeros(16)])
    made = Dictionary(
        "standard", encoder.T, encoder, bias, torch.zeros(len(direction)), "resid_pre", 0
    )
    texts, labels = _texts()
    found = probe_features(model, made, texts, labels, k=(1,), held_out=0.5)
    rows = found.to_pandas().set_index("features")
    assert found.chosen["top 1"] == (0,)
    score, null, chance, n = rows[["score", "null", "chance", "n"]].to_numpy()[0].tolist()
    assert score > 0.9
    assert null < score - 0.1
    assert (chance, n) == (0.5, 20)
    assert float(np.nanmax(rows["high"])) <= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": [0, 1]}, "2 labels for 40 texts"),
        ({"labels": [0, 2] * 20}, "0 or 1 for each"),
        ({"labels": [0] * 38 + [1] * 2}, "at least 4 texts"),
        ({"k": (99,)}, "from 1 to the 4 features"),
        ({"held_out": 1.0}, "share between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused(bundled_induction, change, words) -> None:
    texts, labels = _texts()
    width = bundled_induction.d_model
    made = Dictionary(
        "standard",
        torch.zeros(width, 4),
        torch.ones(4, width),
        torch.zeros(4),
        torch.zeros(width),
        "resid_pre",
        0,
    )
    options = {"labels": labels, "k": (1,)} | change
    with pytest.raises(OptionError, match=words):
        probe_features(bundled_induction, made, texts, **options)
