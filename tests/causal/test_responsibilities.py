"""Responsibilities of heads: the posterior of a mixture, and a planted dependence on the input."""

from __future__ import annotations

import numpy as np
import pytest

from interp import causal
from interp.causal.responsibilities import information_of, information_test
from interp.core.errors import OptionError


def test_responsibilities_are_the_posterior_of_the_mixture(planted_bystander) -> None:
    task = causal.repeats_task(planted_bystander, n=4, max_length=8)
    found = causal.head_responsibilities(planted_bystander, task, sharpness=2.0, n_random=19)
    damage = causal.leave_one_out(planted_bystander, task, null="none")
    np.testing.assert_allclose(found.per_prompt.sum(0), 1)
    for p in range(damage.per_prompt.shape[1]):
        # likelihoods of the prompt under each expert, by hand; the clean loss cancels
        likelihood = np.array([np.exp(-2.0 * float(x)) for x in damage.per_prompt[:, p]])
        np.testing.assert_allclose(found.per_prompt[:, p], likelihood / likelihood.sum())
    rows = found.wide().set_index("head")
    least = set(rows["score"].sort_values().index[:2])
    assert least == {"L0H3", "L1H0"}  # the circuit: previous token, and copying
    assert (rows["null"] == 1 / len(found)).all()
    assert found.information < 1e-3  # repeats all need the same heads


def test_heads_that_inputs_need_differently_are_told_apart() -> None:
    """Two kinds of prompts that need one head each, against effects without an order."""
    needs = np.zeros((4, 16))
    needs[0, :8] = needs[1, 8:] = 4.0
    own, null, p = information_test(needs, 99, 0)
    assert own > null
    assert p == 0.01
    drawn = np.random.default_rng(3).exponential(size=(4, 16))
    assert information_test(drawn, 99, 0)[2] > 0.05
    half = np.array([[0.97, 0.03], [0.03, 0.97]])
    assert information_of(half) == pytest.approx(
        np.log(2) + 0.97 * np.log(0.97) + 0.03 * np.log(0.03)
    )
    assert information_of(np.array([[0.7, 0.7], [0.3, 0.3]])) == 0
    assert information_of(np.eye(3)) == pytest.approx(np.log(3))


def test_mixtures_that_are_none_are_refused(planted_bystander) -> None:
    task = causal.repeats_task(planted_bystander, n=4, max_length=8)
    with pytest.raises(OptionError, match="positive factor"):
        causal.head_responsibilities(planted_bystander, task, sharpness=0.0)
    with pytest.raises(OptionError, match="needs two of each"):
        causal.head_responsibilities(planted_bystander, task, heads=["L1H0"])
