"""The contracts of attribution and circuit methods refuse each way to break them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.attribution import Scores, attribution
from interp.circuits import discovery
from interp.circuits.declaration import Found
from interp.testing import ContractError, check_attribution_method, check_circuit_method


@attribution(unit="share", signed=False, needs="nothing")
def negative(example):
    """Give every token -1.

    Not for: a test.
    """
    return Scores(-np.ones(len(example)))


@attribution(unit="share", signed=True, needs="nothing")
def unseeded(example, *, last: bool = True):
    """Draw scores.

    Not for: a test.
    """
    return Scores(np.random.default_rng().normal(size=len(example)))


@attribution(unit="share", signed=True, needs="forward")
def secret_gradient(example):
    """Take a gradient.

    Not for: a test.
    """
    x = torch.ones(len(example), requires_grad=True)
    return Scores(torch.autograd.grad(x.sum(), x)[0].numpy())


@attribution(unit="share", signed=True, needs="gradients")
def leaving(example):
    """Leave a gradient in the model.

    Not for: a test.
    """
    weight = next(iter(example.model.module.parameters()))
    weight.grad = torch.zeros_like(weight)
    return Scores(np.zeros(len(example)))


@pytest.mark.parametrize(
    ("method", "contract"),
    [
        (negative, "signed=False and must give no score below 0; the lowest is -1"),
        (unseeded, "must give the same scores when it runs again"),
        (secret_gradient, "must declare it: needs='gradients', not 'forward'"),
        (leaving, "must leave no gradients in the model"),
    ],
)
def test_a_broken_attribution_method_is_one_sentence(method, contract) -> None:
    with pytest.raises(ContractError, match=contract):
        check_attribution_method(method)


def nodes(model) -> tuple[str, ...]:
    return tuple(f"L{site.layer}H{h}" for site in model.sites for h in range(site.n_heads))


@discovery(levels=("head",))
def twice(model, task, level):
    """Name one node for all.

    Not for: a test.
    """
    n = len(nodes(model))
    return Found(nodes(model)[:1] * n, np.zeros((n, 1)), unit="none")


@discovery(levels=("head",))
def unitless(model, task, level):
    """State no unit.

    Not for: a test.
    """
    return Found(nodes(model), np.zeros((len(nodes(model)), 1)), unit="")


@discovery(levels=("head",))
def unsigned(model, task, level):
    """Score below 0 without saying so.

    Not for: a test.
    """
    return Found(nodes(model), -np.ones((len(nodes(model)), 1)), unit="none", signed=False)


@pytest.mark.parametrize(
    ("method", "contract"),
    [
        (twice, "twice must score every node once"),
        (unitless, "unitless must state the unit of its scores"),
        (unsigned, "unsigned states signed=False and must give no score below 0"),
    ],
)
def test_a_broken_circuit_method_is_one_sentence(method, contract) -> None:
    with pytest.raises(ContractError, match=contract):
        check_circuit_method(method)


def test_methods_of_interp_keep_it() -> None:
    check_attribution_method("rollout")
    check_attribution_method("occlusion")
    check_circuit_method("exact_patching")
