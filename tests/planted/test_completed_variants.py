"""Variants with gates, memories and rounds against their formulas, one number at a time."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from planted.test_variant_formulas import HEADS, LENGTH, WIDTH, given, numbers, threshold
from planted.variant_entries import D, Entry, attended, causal_softmax, compare, plain, split, x_of
from scipy.special import expit, softmax
from sklearn.cluster import KMeans
from together import over
from transformers import NystromformerConfig
from transformers.models.nystromformer import modeling_nystromformer as nystromformer

from training import forms
from training.forms.rule import RuleShape


def silu(x: np.ndarray) -> np.ndarray:
    return x * expit(x)


def linear(rule: Any, part: str, x: np.ndarray) -> np.ndarray:
    module = getattr(rule, part)
    bias = 0 if module.bias is None else module.bias.detach().numpy()
    return x @ module.weight.detach().numpy().T + bias


# --- entries of maps ---


def labelled(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k, labels = state.q.numpy()[0, h], state.k.numpy()[0, h], numbers(rule, "labels")[h]

    def label(a: int, b: int) -> int:
        if (a < 2) == (b < 2):
            return 3 + max(-3, min(3, b - a))
        shared, token = min(a, b), max(a, b)
        return 7 if min((token - 2) // 8, 1) == shared else 8

    kept = [m for m in range(LENGTH) if abs(i - m) < 4 or m < 2 or i < 2]
    if j not in kept:
        return 0.0
    return attended([q[i] @ (k[m] + labels[label(i, m)]) / 2 for m in kept], kept.index(j))


def gaussians(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = state.q.numpy()[0, h], state.k.numpy()[0, h]
    height, spread = numbers(rule, "height")[h, :, 0, 0], numbers(rule, "spread")[h, :, 0, 0]
    s = []
    for m in range(LENGTH):
        apart = (i // 4 - m // 4) ** 2 + (i % 4 - m % 4) ** 2
        mask = sum(
            a * math.exp(-apart / (2 * b * b + 1e-5)) for a, b in zip(height, spread, strict=True)
        )
        s.append(mask * (q[i] @ k[m]) / 2)
    return attended(s, j)


def slices(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    x = x_of(state).reshape(LENGTH, HEADS, WIDTH)
    np.testing.assert_allclose(state.v.numpy()[0, h], x[:, h])
    own = hasattr(rule, "key")
    k = split(rule, "key", x_of(state)) if own else x
    return causal_softmax(split(rule, "query", x_of(state)), k, h, i, j)


def tempered(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    growth, x = expit(numbers(rule, "growth")[:, h, 0]), x_of(state)

    def of(part: str, g: float, t: int) -> float:
        return float(np.tanh(linear(rule, part, x[t])[h]) + 1 + g * math.log(t + 1))

    value = split(rule, "value", x)[j, h] * of("loudness", growth[1], j)
    np.testing.assert_allclose(state.v.numpy()[0, h, j], value)
    t = of("sharpness", growth[0], i)
    q, k = split(rule, "query", x)[i, h], split(rule, "key", x)[:, h]
    return attended([t * (q @ k[m]) / 2 for m in range(i + 1)], j)


def own_power(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    q, k = state.q.numpy()[0, h], state.k.numpy()[0, h]
    power = 1 + expit(numbers(rule, "logit")[h])
    return threshold(power)(np.array([q[i] @ k[m] for m in range(i + 1)]) / 2)[j]


def met(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    planes = numbers(rule, "hashes")[h].reshape(32, 8, WIDTH)
    x = x_of(state)
    q, k = split(rule, "query", x)[i, h], split(rule, "key", x)[j, h]
    return float(np.mean([all((p @ q > 0) == (p @ k > 0) for p in draw) for draw in planes]))


def adapted(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    x, a = x_of(state), math.exp(numbers(rule, "precision")[h, 0, 0])
    stiff = math.exp(numbers(rule, "stiff")[h, 0, 0])
    q, k, prior = (
        split(rule, "query", x)[:, h],
        split(rule, "key", x)[:, h],
        linear(rule, "prior", x)[:, h],
    )

    def posterior(k: np.ndarray, t: int) -> np.ndarray:
        return softmax([prior[m] - a * ((q[t] - k[m]) ** 2).sum() / 2 for m in range(LENGTH)])

    w = [posterior(k, t) for t in range(LENGTH)]
    moved = np.array(
        [
            (stiff * k[m] + a * sum(w[t][m] * q[t] for t in range(LENGTH)))
            / (stiff + a * sum(w[t][m] for t in range(LENGTH)))
            for m in range(LENGTH)
        ]
    )
    np.testing.assert_allclose(state.k.numpy()[0, h], moved)
    return posterior(moved, i)[j]


def prototypes(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    s = [state.q[0, h, i] @ state.k[0, h, m] / 2 for m in range(i + 1)]
    slots = [state.q[0, h, i] @ key / 2 for key in rule.slot_keys[h]]
    return math.exp(s[j]) / sum(math.exp(x) for x in [*s, *slots])


def averaged(rule: Any, state: Any, h: int, i: int, j: int) -> float:
    """Mega, with its recurrence token by token."""
    a, b, c, damp = numbers(rule, "average")
    a, b, damp, x = expit(a), expit(b), expit(damp), x_of(state)
    kept, y = np.zeros_like(a), []
    for t in range(LENGTH):
        kept = a * b * x[t] + (1 - a * damp) * kept
        y.append((c * kept).sum(0))
    np.testing.assert_allclose(state.more["average"].numpy()[0], np.array(y))
    u = silu(linear(rule, "query", np.array(y)))
    (of_q, of_k), (q_off, k_off) = numbers(rule, "turn")
    np.testing.assert_allclose(state.v.numpy()[0, 0], silu(linear(rule, "value", x)))
    q, k, bias = of_q * u + q_off, of_k * u + k_off, numbers(rule, "bias")
    return attended([q[i] @ k[m] / math.sqrt(D) + bias[i - m] for m in range(i + 1)], j)


ENTRIES: dict[str, Entry] = {
    "global_local": labelled,
    "gaussian_mask": gaussians,
    "optimised_attention": slices,
    "efficient_attention": slices,
    "query_temperature": tempered,
    "adaptive_entmax": own_power,
    "hash_samples": met,
    "probabilistic": adapted,
    "prototype_memory": prototypes,
    "moving_average": averaged,
}


@torch.no_grad()
@over("name", ENTRIES)
def test_entries_are_the_formula_of_the_paper(name) -> None:
    compare(*given(name), ENTRIES[name])


# --- what follows the map ---


@torch.no_grad()
def test_the_gates_of_mega_choose_between_attention_and_input() -> None:
    rule, state = given("moving_average")
    y, z = state.more["average"].numpy()[0], rule.mix(state).numpy()[0, 0]
    gated = rule.after(rule.mix(state), state).numpy()[0]
    np.testing.assert_allclose(gated, silu(linear(rule, "reset", y)) * z)
    written = np.random.default_rng(0).normal(size=y.shape)
    found = rule.finish(torch.tensor(written)[None], state).numpy()[0]
    hidden, update = silu(linear(rule, "hidden", y) + written), expit(linear(rule, "update", y))
    x = x_of(state)
    np.testing.assert_allclose(x + found, update * hidden + (1 - update) * x)


@torch.no_grad()
def test_rectified_outputs_are_normalised_together_and_gated_by_themselves() -> None:
    rule, state = given("relu_norm")
    z = rule.mix(state)
    found = rule.after(z, state).numpy()[0, 6]
    flat = z.numpy()[0, :, 6].reshape(-1)
    gate = numbers(rule, "gate")
    wanted = flat / math.sqrt((flat**2).mean() + 1e-6) * expit(gate * flat)
    np.testing.assert_allclose(found, wanted)


@torch.no_grad()
def test_convolved_heads_are_normalised_and_scaled_by_their_layer() -> None:
    for layer in (0, 3):
        rule = forms.rule_class("score_convolution")(RuleShape(D, HEADS, WIDTH, 16, layer))
        z = torch.randn(1, HEADS, LENGTH, WIDTH)
        found = rule.after(z, given("score_convolution")[1]).view(1, LENGTH, HEADS, WIDTH)
        wanted = (0.2 + 0.6 * math.exp(-0.3 * layer)) * torch.nn.functional.rms_norm(z, (WIDTH,))
        torch.testing.assert_close(found.transpose(1, 2), wanted, atol=1e-4, rtol=1e-4)


# --- repeated attention ---


def contraction() -> Any:
    rule, state = given("fixed_point")
    for part in (rule.query, rule.value):
        part.weight.data.mul_(0.3)
    rule.most, rule.tolerance = 400, 1e-12
    return rule, state.x


def unrolled(rule: Any, x: torch.Tensor, rounds: int) -> torch.Tensor:
    k, v = (part(x).view(LENGTH, HEADS, WIDTH) for part in (rule.key, rule.value))
    z = torch.zeros_like(x)
    hidden = torch.ones(LENGTH, LENGTH).triu(1) > 0
    for _ in range(rounds):
        q = rule.query(x + z).view(LENGTH, HEADS, WIDTH)
        s = torch.einsum("ihd,jhd->hij", q, k) / 2
        m = s.masked_fill(hidden, -torch.inf).softmax(-1)
        z = torch.einsum("hij,jhd->ihd", m, v).reshape(1, LENGTH, D)
    return z


def test_attention_settles_with_the_gradient_of_the_fixed_point() -> None:
    rule, x = contraction()
    state = rule.prepare(x)
    found = rule.mix(state).transpose(1, 2).flatten(2)
    wanted = unrolled(rule, x, 200)
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=1e-9)
    weight = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
    for part in (rule.query, rule.key, rule.value):
        [one], [two] = (
            torch.autograd.grad((z * weight).sum(), part.weight, retain_graph=True)
            for z in (found, wanted)
        )
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_rows_settle_by_themselves() -> None:
    rule, x = contraction()
    rule.tolerance = 1e-4
    rounds = rule.prepare(x).more["rounds"][0]
    assert rounds[0] == 2  # the first row sees one value, whatever its query
    assert len(set(rounds.tolist())) > 1
    assert torch.equal(rule.prepare(x[:, :5]).more["rounds"][0], rounds[:5])


# --- memories and centres ---


@torch.no_grad()
def test_slots_are_prototypes_of_past_keys_while_training() -> None:
    rule, state = given("prototype_memory")
    before = int(rule.passes)
    rule.eval().prepare(state.x)
    assert int(rule.passes) == before
    rule.train()
    rule.passes.zero_()
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(4, 16, D, dtype=torch.float64, generator=generator) for _ in range(20)]
    for x in inputs[:19]:
        rule.prepare(x)
    first = rule.slot_keys.clone()
    rule.prepare(inputs[19])
    x = np.concatenate([part.numpy().reshape(-1, D) for part in inputs])
    keys, values = (split(rule, part, x)[-512:] for part in ("key", "value"))
    for h in range(HEADS):
        fit: Any = KMeans(8, init=first[h].numpy(), n_init=cast(Any, 1), max_iter=3, tol=0).fit(
            keys[:, h]
        )
        np.testing.assert_allclose(rule.slot_keys[h].numpy(), fit.cluster_centers_, atol=1e-9)
        for s, centre in enumerate(fit.cluster_centers_):
            apart = np.linalg.norm(keys[:, h] - centre, axis=1)
            near = np.argsort(apart)[:8]
            weight = np.exp(-apart[near]) / np.exp(-apart[near]).sum()
            np.testing.assert_allclose(rule.slot_values[h, s], weight @ values[near, h])


@torch.no_grad()
def test_centres_follow_what_belongs_to_them_while_training() -> None:
    rule, state = given("clusters")
    before, rule = numbers(rule, "centres").copy(), rule.eval()
    rule.prepare(state.x)
    np.testing.assert_array_equal(numbers(rule, "centres"), before)
    rule.train().prepare(state.x)
    for h in range(HEADS):
        wanted = before[h].copy()
        for part in (state.q, state.k):
            unit = part.numpy()[0, h]
            unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
            own = [int(np.argmax(before[h] @ x / np.linalg.norm(before[h], axis=1))) for x in unit]
            for c in set(own):
                mean = np.mean([x for x, n in zip(unit, own, strict=True) if n == c], axis=0)
                wanted[c] += 0.025 * (mean - before[h, c])
        np.testing.assert_allclose(numbers(rule, "centres")[h], wanted)


# --- symbols and relations ---


@torch.no_grad()
def test_relations_belong_to_pairs_and_symbols_to_kinds_of_tokens() -> None:
    """Head 0 is sensory; what head 1 writes beside its symbols is from all pairs."""
    rule, state = given("relational")
    x, related, written = x_of(state), numbers(rule, "related"), numbers(rule, "written")[0]
    found = rule.rest(state).numpy()[0]
    assert not found[0].any()
    for i in (0, 5, LENGTH - 1):
        pairs = [
            [(x[i] @ related[0, r]) @ (x[j] @ related[1, r]) for r in range(4)]
            for j in range(i + 1)
        ]
        wanted = sum(plain(rule, state, 1, i, j) * (pairs[j] @ written) for j in range(i + 1))
        np.testing.assert_allclose(found[1, i], wanted, atol=1e-9)
    value = x @ rule.value.weight.numpy().T
    np.testing.assert_allclose(state.v.numpy()[0, 0], value)
    templates, symbols = numbers(rule, "library")[:, 0]
    asked = linear(rule, "symbol_query", x)
    for j in (0, 7):
        symbol = softmax(templates @ asked[j] / 2) @ symbols
        np.testing.assert_allclose(state.v.numpy()[0, 1, j], symbol)


# --- estimates and inference ---


@torch.no_grad()
def test_more_hashes_approach_their_expectation() -> None:
    rule, state = given("hash_samples")
    exact = forms.rule_class("hash_collisions").rows(rule, state, state.every)
    errors = []
    for drawn in (8, 5000):
        generator = torch.Generator().manual_seed(1)
        size = (HEADS, drawn * rule.planes, WIDTH)
        hashes = torch.randn(size, generator=generator, dtype=torch.float64)
        rule.drawn, rule.hashes = drawn, torch.nn.Parameter(hashes, requires_grad=False)
        errors.append(float((rule.rows(state, state.every) - exact).abs().max()))
    assert errors[1] < 0.03 < errors[0]


def test_the_learned_power_has_its_own_gradient() -> None:
    rule, state = given("adaptive_entmax")
    weight = torch.randn(1, HEADS, LENGTH, LENGTH, dtype=torch.float64)

    def value() -> torch.Tensor:
        return (rule.rows(state, state.every) * weight).sum()

    [found] = torch.autograd.grad(value(), rule.logit)
    for h in range(HEADS):
        ends = []
        for step in (1e-5, -1e-5):
            rule.logit.data[h] += step
            ends.append(float(value().detach()))
            rule.logit.data[h] -= step
        assert float(found[h]) == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-4, abs=1e-6)


@torch.no_grad()
def test_known_values_reach_positions_that_ask_the_same_keys() -> None:
    rule, state = given("probabilistic")
    values = torch.randn_like(state.v)
    known = torch.zeros(LENGTH, dtype=torch.bool)
    known[[2, 7]] = True
    found = rule.propagate(state, values, known).v.numpy()[0]
    w, v = rule.rows(state, state.every).numpy()[0], state.v.numpy()[0]
    for h in range(HEADS):
        a = math.exp(numbers(rule, "precision")[h, 0, 0])
        for j in (0, 4, 7):
            sums = v[h, j] + a * sum(w[h, i, j] * values[0, h, i].numpy() for i in (2, 7))
            np.testing.assert_allclose(found[h, j], sums / (1 + a * (w[h, 2, j] + w[h, 7, j])))


@torch.no_grad()
def test_landmarks_and_convolution_are_those_of_nystromformer() -> None:
    shape = RuleShape(D, HEADS, WIDTH, 16)
    torch.manual_seed(0)
    rule: Any = forms.rule_class("nystrom")(shape).double()
    config = NystromformerConfig(
        hidden_size=D,
        num_attention_heads=HEADS,
        num_landmarks=4,
        segment_means_seq_len=12,
        conv_kernel_size=5,
        attention_probs_dropout_prob=0.0,
    )
    other: Any = nystromformer.NystromformerSelfAttention(config).double().eval()
    other.init_option = "exact"
    for name in ("query", "key", "value"):
        getattr(other, name).weight.copy_(getattr(rule, name).weight)
        getattr(other, name).bias.zero_()
    other.conv.weight.copy_(rule.kernel[:, None, :, None])
    x = torch.randn(2, 12, D, dtype=torch.float64)
    state = rule.prepare(x)
    found = (rule.rows(state, state.every) @ state.v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(found, other(x)[0], atol=1e-9, rtol=1e-9)
    errors = []
    for rule.iterations in (2, 20):
        middle = torch.softmax(torch.randn(3, 4, 4, dtype=torch.float64), -1)
        errors.append(float((rule._inverse(middle) @ middle - torch.eye(4)).abs().max()))
    assert errors[1] < 1e-6 < errors[0]
