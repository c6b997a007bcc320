"""Further variants against their formulas, computed a second time: one number at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from planted.test_variant_formulas import HEADS, LENGTH, WIDTH, given, numbers
from planted.variant_entries import (
    D,
    Entry,
    attended,
    causal_softmax,
    compare,
    plain,
    product,
    split,
    x_of,
)
from scipy.optimize import brentq
from scipy.special import expit, softmax
from together import over

from training import forms
from training.forms.rule import RuleShape


def knocking(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    of_q, of_k, up, down = numbers(rule, "shared")
    x, gate = x_of(state), numbers(rule, "gate")
    q, k = (split(rule, part, x) @ m for part, m in (("query", of_q), ("key", of_k)))
    v = split(rule, "value", x)[i, h]
    wanted = np.array([a * 2 * expit(b) for a, b in zip(v @ up, v @ gate, strict=True)]) @ down
    np.testing.assert_allclose(state.v.numpy()[0, h, i], wanted)
    return causal_softmax(q, k, h, i, j)


def grouped(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    share = numbers(rule, "share")[:, :, 0, 0]
    x = x_of(state)
    k, v = (
        sum(share[n, g] * split(rule, part, x)[:, g] for g in range(HEADS))
        for n, part in enumerate(("key", "value"))
    )
    np.testing.assert_allclose(state.v.numpy()[0, h], v)
    return causal_softmax(split(rule, "query", x), np.stack([k] * HEADS, 1), h, i, j)


def overlapping(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    def wide(part: str) -> np.ndarray:
        flat = x_of(state) @ getattr(rule, part).weight.detach().numpy().T
        padded = np.pad(flat, ((0, 0), (1, 1)))
        return np.stack([padded[:, n * WIDTH : (n + 1) * WIDTH + 2] for n in range(HEADS)], 1)

    np.testing.assert_allclose(state.v.numpy()[0, h], wide("value")[:, h])
    return causal_softmax(wide("query"), wide("key"), h, i, j)


def embedded(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    offsets, x = numbers(rule, "offsets")[:, :, 0], x_of(state)
    q, k, v = (
        np.stack([x @ getattr(rule, part).weight.detach().numpy().T + o for o in offsets[n]], 1)
        for n, part in enumerate(("query", "key", "value"))
    )
    np.testing.assert_allclose(state.v.numpy()[0, h], v[:, h])
    return causal_softmax(q, k, h, i, j)


PROJECTIONS: dict[str, Entry] = {
    "knocking_heads": knocking,
    "weighted_groups": grouped,
    "overlapping_heads": overlapping,
    "head_embeddings": embedded,
}


# --- formulas of one entry ---


def convolution(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    found = np.zeros_like(x)
    for t in range(len(x)):
        for back in range(min(3, t + 1)):
            found[t] += kernel[back] * x[t - back]
    return found


def conditional(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    x = x_of(state)
    x = x + convolution(x, numbers(rule, "kernel"))
    return causal_softmax(split(rule, "query", x), split(rule, "key", x), h, i, j)


def convolved(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    kernels, bias = numbers(rule, "kernels"), numbers(rule, "bias")[h]
    q, k, v = (
        convolution(split(rule, part, x_of(state)).reshape(LENGTH, D), kernel).reshape(
            LENGTH, HEADS, WIDTH
        )
        for part, kernel in zip(("query", "key", "value"), kernels, strict=True)
    )
    np.testing.assert_allclose(state.v.numpy()[0, h], v[:, h])
    return attended([q[i, h] @ k[m, h] / 2 + bias[i - m] for m in range(i + 1)], j)


def mixed_positions(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    x = x_of(state).reshape(LENGTH, HEADS, WIDTH)
    np.testing.assert_allclose(state.v.numpy()[0, h], x[:, h])
    q, mixing = split(rule, "query", x_of(state)), numbers(rule, "mixing")
    return sum(causal_softmax(q, x, h, i, m) * mixing[m, j] for m in range(j, i + 1))


def network(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    (a, b), c, w = (
        numbers(rule, "first")[:, h],
        numbers(rule, "bias")[h, 0, 0],
        numbers(rule, "last"),
    )
    q, k = state.q.numpy()[0, h], state.k.numpy()[0, h]
    s = [float(np.maximum(q[i] @ a + k[m] @ b + c, 0) @ w[h, :, 0]) for m in range(i + 1)]
    return attended(s, j)


def polynomial(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    def standard(x: np.ndarray) -> np.ndarray:
        return (x - x.mean()) / math.sqrt(x.var() + 1e-6)

    q, k = (split(rule, part, x_of(state))[:, h] for part in ("query", "key"))
    s = np.array([standard(q[i]) @ standard(k[m]) for m in range(i + 1)])
    f = 1 + s + s**2 / 2
    return f[j] / f.sum()


def corrected(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    def row(at: int, sparse: bool) -> np.ndarray:
        kept = [m for m in range(at + 1) if not sparse or at - m < 4 or m < 2]
        found = np.zeros(LENGTH)
        found[kept] = softmax([product(state, h, at, m) for m in kept])
        return found

    base = i - i % 4
    return (row(i, True) + row(base, False) - row(base, True))[j]


def flows(rule: Any, state: Any, h: int, i: int, j: int, of: Any) -> Any:
    """An entry, where `of(a)` gives the positions that exchange flow with position a."""
    q, k = expit(state.q.numpy()[0, h]), expit(state.k.numpy()[0, h])
    every = range(LENGTH)
    n = [len(of(a)) for a in every]
    into = [sum(q[a] @ k[b] for b in of(a)) for a in every]
    out = [sum(k[b] @ q[a] for a in of(b)) for b in every]
    kept_in = sum(q[i] @ k[b] * n[b] / out[b] for b in of(i)) / n[i]
    kept_out = [sum(k[b] @ q[a] * n[a] / into[a] for a in of(b)) / n[b] for b in every]
    sent = [math.exp(min(max(x, -1), 1)) for x in kept_out]
    return expit(kept_in) * (q[i] @ k[j]) / into[i] * sent[j] / sum(sent[b] for b in of(j)) * n[j]


def flow(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    return flows(rule, state, h, i, j, lambda a: range(LENGTH))


def causal_flow(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    return flows(rule, state, h, i, j, lambda a: range(a + 1))


def quasi(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    apart = np.abs(state.q.numpy()[0, h, i] - state.k.numpy()[0, h, j]).sum() / 2
    return math.tanh(product(state, h, i, j)) * expit(-apart)


def focused(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    def phi(x: torch.Tensor) -> np.ndarray:
        r = np.maximum(x.numpy(), 0) + 1e-6
        return np.linalg.norm(r) / np.linalg.norm(r**3) * r**3

    f = [phi(state.q[0, h, i]) @ phi(state.k[0, h, m]) for m in range(i + 1)]
    return float(f[j] / sum(f))


def selected(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    u = rule.score(state.x).numpy()[0, : i + 1, h]
    total = min(3, i + 1)
    tau: Any = brentq(
        lambda t: np.clip(u - t, 0, 1).sum() - total, u.min() - 1.5, u.max(), xtol=1e-14
    )
    m = np.clip(u - tau, 0, 1) if i + 1 > 3 else np.ones(i + 1)
    kept = [n for n in range(i + 1) if m[n] > 1e-12]
    if j not in kept:
        return 0.0
    return m[j] * attended([product(state, h, i, n) for n in kept], kept.index(j))


def chosen(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    route = expit(rule.router.weight.numpy()[h] @ x_of(state).T + float(rule.router.bias[h]))
    best = sorted(np.argsort(-route)[: LENGTH // 4])
    if i not in best or j not in best:
        return 0.0
    return route[i] * attended([product(state, h, i, m) for m in best], best.index(j))


def exponential(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = (split(rule, part, x_of(state))[:, h] for part in ("query", "key"))
    return math.exp(q[i] @ k[j] / np.linalg.norm(q[i]) / np.linalg.norm(k[j]))


def kernel_relative(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = (split(rule, part, x_of(state))[:, h] for part in ("query", "key"))
    draws, bias = numbers(rule, "draws")[h], numbers(rule, "bias")[h]

    def phi(x: np.ndarray) -> np.ndarray:
        return np.exp(x / np.linalg.norm(x) @ draws - 0.5)

    f = [phi(q[i]) @ phi(k[m]) * math.exp(bias[i - m]) for m in range(i + 1)]
    return f[j] / sum(f)


def routed(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    v, b = state.v.numpy()[0, h, : i + 1], np.zeros(i + 1)
    for _ in range(2):
        z = np.tanh(softmax(b) @ v)
        b = b + np.array([z @ v[m] for m in range(i + 1)])
    return softmax(b)[j]


def predicted(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    hidden = np.tanh(rule.hidden.weight.numpy() @ x_of(state)[i])
    place = i * expit(rule.place.weight.numpy()[h] @ hidden)
    return plain(rule, state, h, i, j) * math.exp(-((j - place) ** 2) / 8)


def toeplitz(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    return plain(rule, state, h, i, j) * numbers(rule, "factor")[h, i - j]


def collision(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = (split(rule, part, x_of(state))[:, h] for part in ("query", "key"))
    cosine = q[i] @ k[j] / np.linalg.norm(q[i]) / np.linalg.norm(k[j])
    return (1 - math.acos(cosine) / math.pi) ** 8


def nested(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    x, inner = x_of(state).copy(), numbers(rule, "inner")
    for t in range(LENGTH):
        parts = x_of(state)[t].reshape(4, -1)
        q, k, v = (parts @ m for m in inner)
        for a in range(4):
            w = softmax([q[a] @ k[b] / math.sqrt(q.shape[1]) for b in range(4)])
            x[t, a * 2 : a * 2 + 2] += w @ v
    return causal_softmax(split(rule, "query", x), split(rule, "key", x), h, i, j)


def through_states(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = softmax(state.q.numpy()[0, h, i]), np.exp(state.k.numpy()[0, h])
    return sum(q[c] * k[j, c] / k[: i + 1, c].sum() for c in range(WIDTH))


def filtered(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    return product(state, h, i, j) * numbers(rule, "filter")[h, i - j] * 0.9 ** (i - j)


def located(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    steps = rule.step.weight.numpy()[h] @ x_of(state).T + float(rule.step.bias[h])
    place = sum(expit(steps[m]) for m in range(i + 1))
    near = [math.exp(-((m - place) ** 2) / 2) for m in range(i + 1)]
    return near[j] / sum(near)


def in_groups(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    if i % 2 != j % 2:
        return 0.0
    q, k = (np.pad(t.numpy()[0, h], ((0, 1), (0, 0))) for t in (state.q, state.k))  # 11 positions
    a = i // 2
    s = [
        (q[2 * a] @ k[2 * b] + q[2 * a + 1] @ k[2 * b + 1]) / math.sqrt(2 * WIDTH) for b in range(6)
    ]
    return attended(s, j // 2)


def log_normal(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = (split(rule, part, x_of(state))[:, h] for part in ("query", "key"))

    def scaled(x: np.ndarray, t: int) -> np.ndarray:
        s_q, s_k = (np.mean(part[: t + 1] ** 2) ** 0.5 for part in (q, k))
        wide = max(((s_q * s_k) ** 2 - rule.b) / rule.a, 0) ** 0.5
        return np.exp(x[t] * wide / math.sqrt(2) / np.mean(x[: t + 1] ** 2) ** 0.5)

    products = [scaled(q, i) @ scaled(k, m) for m in range(i + 1)]
    return products[j] / (sum(products) + 1e-6)


ENTRIES: dict[str, Entry] = {
    "conditional_positions": conditional,
    "convolved_projections": convolved,
    "super_attention": mixed_positions,
    "neural_scores": network,
    "fastmax": polynomial,
    "delta_correction": corrected,
    "flow_conservation": flow,
    "relational": plain,
    "causal_flow": causal_flow,
    "quasi": quasi,
    "focused_linear": focused,
    "sparse_k": selected,
    "expert_choice": chosen,
    "exponential_norm": exponential,
    "kernel_relative": kernel_relative,
    "dynamic_routing": routed,
    "predicted_window": predicted,
    "toeplitz_product": toeplitz,
    "hash_collisions": collision,
    "nested": nested,
    "latent_states": through_states,
    "long_convolution": filtered,
    "monotonic_location": located,
    "grouped_positions": in_groups,
    "log_normal": log_normal,
}


@torch.no_grad()
@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections_are_those_of_the_paper(name) -> None:
    compare(*given(name), PROJECTIONS[name])


@torch.no_grad()
@over("name", ENTRIES)
def test_entries_are_the_formula_of_the_paper(name) -> None:
    compare(*given(name), ENTRIES[name])


def test_log_normal_attention_spreads_its_logs_as_softmax_does() -> None:
    draw = torch.Generator().manual_seed(3)
    x = 2**0.5 * torch.randn(1, 256, 32, generator=draw, dtype=torch.float64)
    found = {}
    for name in ("log_normal", "plain_softmax", "linear"):
        rule = forms.rule_class(name)(RuleShape(32, 1, 16, 256)).double()
        with torch.no_grad():  # independent queries and keys, entries of variance 2
            rule.query.weight.copy_(torch.eye(32)[:16])
            rule.key.weight.copy_(torch.eye(32)[16:])
            row = rule.rows(rule.prepare(x), torch.tensor([255]))
        found[name] = float(row.log().var())
    assert found["log_normal"] == pytest.approx(found["plain_softmax"], rel=0.35)
    assert found["linear"] < found["plain_softmax"] / 4
