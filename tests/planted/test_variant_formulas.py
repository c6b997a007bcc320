"""Variants against their formulas, computed a second time: one number at a time, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit, softmax
from together import over

from training import forms
from training.forms.rule import RuleShape

LENGTH, HEADS, WIDTH = 11, 2, 4
Row = Callable[[np.ndarray], np.ndarray]


def given(name: str) -> tuple[Any, Any]:
    """A rule of random weights in float64, and its tensors for a random input."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        rule = forms.rule_class(name)(RuleShape(HEADS * WIDTH, HEADS, WIDTH, 16)).double()
        x = torch.randn(1, LENGTH, HEADS * WIDTH, dtype=torch.float64) * 2
    return rule, rule.prepare(x)


def threshold(power: float) -> Row:
    """Weights max(power' s - tau, 0)^(1 / (power - 1)) with tau by bisection."""

    def row(s: np.ndarray) -> np.ndarray:
        s = s * (power - 1)

        def weights(tau: float) -> np.ndarray:
            return np.maximum(s - tau, 0) ** (1 / (power - 1))

        tau: Any = brentq(lambda t: weights(t).sum() - 1, s.max() - 2, s.max(), xtol=1e-14)
        return weights(tau)

    return row


def cog(s: np.ndarray) -> np.ndarray:
    sizes = np.exp(np.abs(s))
    return np.sign(s) * sizes / sizes.sum()


def clip(s: np.ndarray) -> np.ndarray:
    return np.clip(1.03 * softmax(s) - 0.03, 0, 1)


def sticks(s: np.ndarray) -> np.ndarray:
    """Weights of the keys before the last, which is the row's own position."""
    left, found = 1.0, np.zeros(len(s))
    for j in range(len(s) - 2, -1, -1):
        found[j] = left * expit(s[j])
        left -= found[j]
    return found


def only(keep: Callable[[int, int], bool]) -> Row:
    def row(s: np.ndarray) -> np.ndarray:
        i = len(s) - 1
        kept = np.array([keep(i, j) for j in range(i + 1)])
        return np.where(kept, np.exp(s), 0) / np.exp(s[kept]).sum()

    return row


def best(s: np.ndarray) -> np.ndarray:
    return (np.arange(len(s)) == s.argmax()).astype(float)


def three(s: np.ndarray) -> np.ndarray:
    kept = s >= np.sort(s)[::-1][: min(3, len(s))].min()
    return np.where(kept, np.exp(s), 0) / np.exp(s[kept]).sum()


#: weights of one row from its visible scaled products alone
OF_SCORES: dict[str, Row] = {
    "plain_softmax": softmax,
    "sigmoid": lambda s: expit(s - math.log(len(s))),
    "relu": lambda s: np.maximum(s, 0) / len(s),
    "relu_norm": lambda s: np.maximum(s, 0),
    "sparsemax": threshold(2.0),
    "entmax": threshold(1.5),
    "signed": cog,
    "clipped": clip,
    "off_by_one": lambda s: np.exp(s) / (1 + np.exp(s).sum()),
    "taylor": lambda s: (1 + s + s**2 / 2) / (1 + s + s**2 / 2).sum(),
    "softplus": lambda s: np.log1p(np.exp(s)) / np.log1p(np.exp(s)).sum(),
    "softplus_power": lambda s: np.log1p(np.exp(s)) ** 3 / (np.log1p(np.exp(s)) ** 3).sum(),
    "relaxed": lambda s: 0.9 * softmax(s) + 0.1 / len(s),
    "hard": best,
    "top_k": three,
    "stick_breaking": sticks,
    "window": only(lambda i, j: i - j < 4),
    "dilated": only(lambda i, j: i - j in (0, 2, 4, 6)),
    "strided": only(lambda i, j: i - j < 4 or (i - j) % 4 == 0),
    "blocks": only(lambda i, j: i // 8 == j // 8),
}


@torch.no_grad()
@over("name", OF_SCORES)
def test_rows_are_the_formula_of_their_scores(name):
    rule, state = given(name)
    found = rule.rows(state, state.every).numpy()[0]
    q, k = state.q.numpy()[0], state.k.numpy()[0]
    for h in range(HEADS):
        for i in range(LENGTH):
            s = np.array([q[h, i] @ k[h, j] for j in range(i + 1)]) / math.sqrt(WIDTH)
            np.testing.assert_allclose(found[h, i, : i + 1], OF_SCORES[name](s), atol=1e-9)


def numbers(module: Any, name: str) -> np.ndarray:
    return getattr(module, name).detach().numpy()


def entry_sink(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    s = [state.q[0, h, i] @ state.k[0, h, m] / 2 for m in range(i + 1)]
    total = sum(math.exp(x) for x in s) + math.exp(rule.sink[h])
    return math.exp(s[j]) / total


def entry_slots(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    s = [state.q[0, h, i] @ state.k[0, h, m] / 2 for m in range(i + 1)]
    slots = [state.q[0, h, i] @ key / 2 for key in rule.slot_keys[h]]
    return math.exp(s[j]) / sum(math.exp(x) for x in [*s, *slots])


def entry_linear(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    def phi(x: torch.Tensor) -> np.ndarray:
        return np.where(x.numpy() > 0, x.numpy() + 1, np.exp(x.numpy()))

    products = [phi(state.q[0, h, i]) @ phi(state.k[0, h, m]) for m in range(i + 1)]
    return float(products[j] / (sum(products) + 1e-6))


def entry_cosformer(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = state.q[0, h].clamp_min(0), state.k[0, h].clamp_min(0)
    near = [q[i] @ k[m] * math.cos(math.pi / 2 * (i - m) / 16) for m in range(i + 1)]
    return float(near[j] / (sum(near) + 1e-6))


def turned(x: np.ndarray) -> np.ndarray:
    """Pairs of features as complex numbers, turned by their place."""
    pairs = x[:, : WIDTH // 2] + 1j * x[:, WIDTH // 2 :]
    rate = 10000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2))
    return pairs * np.exp(1j * np.arange(len(x))[:, None] * rate)


def entry_retention(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = (
        turned(part(state.x).numpy()[0].reshape(LENGTH, HEADS, WIDTH)[:, h])
        for part in (rule.query, rule.key)
    )
    return (q[i] @ k[j].conj()).real / 2 * (1 - 2 ** (-5 - h)) ** (i - j)


def entry_gated(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    a = (expit(rule.forget(state.x).numpy()[0]) ** (1 / 16)).reshape(LENGTH, HEADS, WIDTH)[:, h]
    q, k = state.q.numpy()[0, h, i], state.k.numpy()[0, h, j]
    return float(sum(q[c] * k[c] * np.prod(a[j + 1 : i + 1, c]) for c in range(WIDTH)) / 2)


def entry_hydra(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = (part(state.x).numpy()[0] for part in (rule.query, rule.key))
    return q[i, h] * k[j, h] / np.linalg.norm(q[i]) / np.linalg.norm(k[j])


def entry_cosine(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = state.q.numpy()[0, h, i], state.k.numpy()[0, h]
    cos = [q @ k[m] / np.linalg.norm(q) / np.linalg.norm(k[m]) for m in range(i + 1)]
    return softmax(np.array(cos) * math.exp(2))[j]


def entry_alibi(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    slope = (1 / 16, 1 / 256)[h]
    s = [float(state.q[0, h, i] @ state.k[0, h, m]) / 2 - slope * (i - m) for m in range(i + 1)]
    return softmax(s)[j]


def entry_inverse(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = state.q.numpy()[0, h, i], state.k.numpy()[0, h]
    near = [1 / (((q - k[m]) ** 2).sum() + 1e-3) for m in range(i + 1)]
    return near[j] / sum(near)


def entry_additive(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k, u = state.q.numpy()[0, h, i], state.k.numpy()[0, h], numbers(rule, "u")[h]
    return softmax([np.tanh(q + k[m]) @ u for m in range(i + 1)])[j]


def entry_talking(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    before, behind = numbers(rule, "before"), numbers(rule, "behind")
    s = [
        [float(state.q[0, f, i] @ state.k[0, f, m]) / 2 for m in range(i + 1)] for f in range(HEADS)
    ]
    total = 0.0
    for g in range(HEADS):
        mixed = [sum(before[g, f] * s[f][m] for f in range(HEADS)) for m in range(i + 1)]
        total += behind[h, g] * softmax(mixed)[j]
    return total


def entry_routed(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    # both of two heads are chosen here; a choice among four is tested with the planted router
    share = softmax(rule.router(state.x).numpy()[0, i])
    s = [float(state.q[0, h, i] @ state.k[0, 0, m]) / 2 for m in range(i + 1)]
    return share[h] * softmax(s)[j]


def entry_forgetting(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    f = expit(rule.forget(state.x).numpy()[0, :, h])
    s = [
        float(state.q[0, h, i] @ state.k[0, h, m]) / 2 + np.log(f[m + 1 : i + 1]).sum()
        for m in range(i + 1)
    ]
    return softmax(s)[j]


def entry_differential(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    a, b, c, d = numbers(rule, "vectors")
    lam = math.exp(a @ b) - math.exp(c @ d) + 0.2
    q, k = state.q.numpy()[0, h, i], state.k.numpy()[0, h]
    one, two = (
        softmax([q[p] @ k[m][p] / math.sqrt(2) for m in range(i + 1)])[j]
        for p in (slice(0, 2), slice(2, 4))
    )
    return one - lam * two


def entry_convolution(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    kernel, behind = numbers(rule, "kernel"), numbers(rule, "behind")[0]

    def score(g: int, row: int, key: int) -> float:
        if not 0 <= key <= row:
            return 0.0
        return float(state.q[0, g, row] @ state.k[0, g, key]) / 2

    def one(g: int) -> float:
        s = [
            sum(kernel[g, a, b + 1] * score(g, i - a, m - b) for a in range(3) for b in (-1, 0, 1))
            for m in range(i + 1)
        ]
        return softmax(s)[j]

    return sum(behind[h, g] * one(g) for g in range(HEADS))


def entry_keys(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, share = state.q.numpy()[0, h, i], softmax(numbers(rule, "share")[h])
    keys = state.k.numpy()[0, h], state.more["second"].numpy()[0, h]
    near = [
        sum(share[r] * math.exp(-((q - keys[r][m]) ** 2).sum() / 4) for r in range(2))
        for m in range(i + 1)
    ]
    return near[j] / sum(near)


def entry_standard(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    s = np.array([float(state.q[0, h, i] @ state.k[0, h, m]) / 2 for m in range(i + 1)])
    a, b = numbers(rule, "gain")[h, 0, 0], numbers(rule, "bias")[h, 0, 0]
    return (a * (s[j] - s.mean()) / math.sqrt(s.var() + 1e-5) + b) / len(s)


def entry_quantised(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    codes = numbers(rule, "codes")[h]
    keys = rule.key(state.x).numpy()[0].reshape(LENGTH, HEADS, WIDTH)[:, h]
    near = [codes[((codes - key) ** 2).sum(-1).argmin()] for key in keys]
    return softmax([state.q.numpy()[0, h, i] @ near[m] / 2 for m in range(i + 1)])[j]


def entry_relative(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    # distances below 8 have buckets of their own, 8 to 10 share the first wide ones
    bucket = {8: 8, 9: 8, 10: 8}
    bias = numbers(rule, "bias")[h]
    s = [
        float(state.q[0, h, i] @ state.k[0, h, m]) / 2 + bias[bucket.get(i - m, i - m)]
        for m in range(i + 1)
    ]
    return softmax(s)[j]


ENTRIES: dict[str, Callable[[Any, Any, int, int, int], float]] = {
    "sink_logit": entry_sink,
    "memory_slots": entry_slots,
    "key_value_bias": entry_slots,
    "linear": entry_linear,
    "cosformer": entry_cosformer,
    "retention": entry_retention,
    "gated_linear": entry_gated,
    "hydra": entry_hydra,
    "cosine": entry_cosine,
    "alibi": entry_alibi,
    "inverse_distance": entry_inverse,
    "additive": entry_additive,
    "talking_heads": entry_talking,
    "mixture_of_heads": entry_routed,
    "forgetting": entry_forgetting,
    "differential": entry_differential,
    "score_convolution": entry_convolution,
    "mixture_of_keys": entry_keys,
    "normalised_scores": entry_standard,
    "quantised_keys": entry_quantised,
    "relative_bias": entry_relative,
}


@torch.no_grad()
@over("name", ENTRIES)
def test_entries_are_the_formula_of_the_docstring(name):
    rule, state = given(name)
    found = rule.rows(state, state.every).numpy()[0]
    for i in (0, 1, 5, LENGTH - 1):
        for j in range(i + 1):
            for h in range(HEADS):
                wanted = float(ENTRIES[name](rule, state, h, i, j))
                assert found[h, i, j] == pytest.approx(wanted, abs=1e-9), (h, i, j)


@torch.no_grad()
def test_random_features_approach_softmax_without_scaling_their_number_down():
    rule, state = given("random_features")
    state.q, state.k = state.q / 3, state.k / 3
    exact = torch.softmax(
        (state.q @ state.k.mT / 2).masked_fill(torch.ones(LENGTH, LENGTH).triu(1) > 0, -torch.inf),
        -1,
    )
    errors = []
    for number in (8, 20_000):
        generator = torch.Generator().manual_seed(2)
        draws = torch.randn(HEADS, number, WIDTH, generator=generator, dtype=torch.float64)
        rule.drawn, rule.draws = number, torch.nn.Parameter(draws, requires_grad=False)
        errors.append(float((rule.rows(state, state.every) - exact).abs().max()))
    assert errors[1] < 0.05 < errors[0]


def test_sparse_weights_are_those_of_the_entmax_package():
    entmax = pytest.importorskip("entmax")
    s = torch.randn(3, 2, 5, 9, dtype=torch.float64) * 2
    seen = torch.ones(5, 9, dtype=torch.bool)
    for name, other in (("entmax", entmax.entmax15), ("sparsemax", entmax.sparsemax)):
        rule, _ = given(name)
        torch.testing.assert_close(rule.weights(s, seen), other(s, dim=-1), atol=1e-6, rtol=1e-6)
