"""Simultaneous translation: heads that align know when to wait, others do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.alignment import made_sentence_pairs
from interp.core.errors import OptionError
from interp.model.policy import Step
from interp.policies import AlignAtt, EDAtt, simultaneous

ALIGNING, OTHERS = ["L1H0", "L1H1"], ["L0H1"]
PAIRS = made_sentence_pairs(16)
ORDER = [pair.source.split()[0] for pair in PAIRS]


def rows_of(order: str) -> list[int]:
    return [i for i, own in enumerate(ORDER) if own == order]


@pytest.fixture(scope="module")
def reordering_model() -> interp.Model:
    return interp.load("bundled:reorder")


def test_aligning_heads_wait_as_long_as_the_word_order_needs(reordering_model) -> None:
    found = simultaneous(reordering_model, PAIRS, "alignatt", values=[3], heads=ALIGNING)
    rows = found.to_pandas().set_index("policy")
    assert rows.loc["alignatt", "score"] == rows.loc["whole", "score"] == 1
    late = found.arrays["each_lagging"]
    assert (late[0, rows_of("turn")] == late[1, rows_of("turn")]).all()  # the last word comes first
    keep = rows_of("keep")
    assert (late[0, keep] <= late[1, keep]).all()
    assert (late[1, keep] - late[0, keep]).mean() > 2
    words = np.array([len(pair.source.split()) for pair in PAIRS])
    targets = np.array([len(pair.target.split()) for pair in PAIRS])
    np.testing.assert_allclose(late[1], words)  # the row that waits for all
    np.testing.assert_allclose(found.arrays["each_proportion"][1], 1)
    assert (targets == words - 1).all()


def test_they_are_better_than_other_heads_and_than_waiting_k_words(reordering_model) -> None:
    at = {}
    for name, policy, value, heads in (
        ("aligning", "alignatt", 2, ALIGNING),
        ("edatt", "edatt", 0.3, ALIGNING),
        ("others", "alignatt", 3, OTHERS),
        ("edatt of others", "edatt", 0.3, OTHERS),
        ("wait-k", "wait-k", 4, None),
    ):
        found = simultaneous(
            reordering_model, PAIRS, policy, values=[value], heads=heads
        ).to_pandas()
        at[name] = found.iloc[0]
    assert at["aligning"]["score"] > 0.9 > at["wait-k"]["score"] + 0.05
    assert at["aligning"]["lagging"] < at["wait-k"]["lagging"] + 0.5
    assert at["edatt"]["score"] > 0.9
    assert at["others"]["score"] < 0.75
    assert at["edatt of others"]["score"] < at["edatt"]["score"] - 0.1


def test_waiting_k_words_is_k_words_late(reordering_model) -> None:
    keep = [PAIRS[i] for i in rows_of("keep")]
    found = simultaneous(reordering_model, keep, "wait-k", values=[2, 3])
    np.testing.assert_allclose(found.score[:2], 1)
    # a target is one word shorter than its source
    late = found.arrays["each_differentiable_lagging"]
    assert (late[1] >= late[0]).all()
    assert 2 <= late[0].mean() < late[1].mean() == pytest.approx(3)


def step_with(weights: torch.Tensor) -> Step:
    from interp.model.capture import ActivationCache

    cache = ActivationCache(torch.empty(0), {("pattern", "cross", 0): weights}, {})
    return Step(None, torch.zeros(1, 1), 0, torch.zeros(1, 4), cache, {}, None)


def test_the_rules_are_the_published_ones() -> None:
    from interp.core.head import Head

    heads = (Head(0, 0, "cross"), Head(0, 1, "cross"))
    weights = torch.zeros(1, 2, 2, 5)
    weights[0, 0, -1] = torch.tensor([0.1, 0.2, 0.1, 0.1, 0.5])  # the last frame is dropped
    weights[0, 1, -1] = torch.tensor([0.3, 0.2, 0.0, 0.1, 0.4])
    row = np.array([0.2, 0.2, 0.05, 0.1])
    mass = (row / np.linalg.norm(row))[-2:].sum()
    for alpha, stops in ((mass - 1e-3, True), (mass + 1e-3, False)):
        assert bool(EDAtt(heads, alpha, 2)(step_with(weights)).stop) == stops
    assert not EDAtt(heads, 0.01, 0)(step_with(weights)).stop  # no newest frame: [-0:] is the row
    for recent, stops in ((2, False), (3, False), (4, True)):
        assert bool(AlignAtt(heads, recent)(step_with(weights)).stop) == stops


def test_wrong_values_and_models_are_refused(reordering_model) -> None:
    with pytest.raises(OptionError, match="above 0"):
        simultaneous(reordering_model, PAIRS[:2], "edatt", values=[-1])
    with pytest.raises(OptionError, match="whole ones"):
        simultaneous(reordering_model, PAIRS[:2], "wait-k", values=[1.5])
    with pytest.raises(OptionError, match="no cross attention"):
        simultaneous("bundled:induction", PAIRS[:2])
    with pytest.raises(OptionError, match="L7H0"):
        simultaneous(reordering_model, PAIRS[:2], heads=["L7H0"])
