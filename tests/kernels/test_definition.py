"""The reference itself: against loops over single numbers, and against values known on paper."""

from __future__ import annotations

import math

import pytest
import torch
from fixtures.kernels import MASKS
from together import over

from interp_kernels import (
    Attention,
    BiasRows,
    Distance,
    Entropy,
    KeySetMass,
    Largest,
    LogSumExp,
    Moments,
    Received,
    attention_statistics,
    reference,
)
from interp_kernels.self_test import every_reduction

NAN = float("nan")


def looped(call):  # noqa: PLR0912 - one branch per mask
    """Weights and scores entry by entry, straight from the text of `Attention`."""
    at = call.shape
    weight = torch.zeros(at.batch, at.head, at.query, at.key, dtype=torch.float64)
    score = torch.full_like(weight, NAN)
    for b in range(at.batch):
        for h in range(at.head):
            for i in range(at.query):
                row = {}
                for j in range(at.key):
                    position = i + call.offset
                    seen = not call.causal or j <= position
                    seen &= call.window is None or j > position - call.window
                    seen &= call.key_padding is None or bool(call.key_padding[b, j])
                    seen &= call.query_padding is None or bool(call.query_padding[b, i])
                    s = 0.0
                    for c in range(at.d):
                        s += float(call.q[b, h, i, c]) * float(
                            call.k[b, h * at.kv_head // at.head, j, c]
                        )
                    s *= call.scale
                    if call.softcap is not None:
                        s = call.softcap * math.tanh(s / call.softcap)
                    if call.ranges is not None:
                        first, end = call.ranges[b % len(call.ranges), i].tolist()
                        seen &= first <= j < end
                    if call.relative_bias is not None:
                        relative = call.relative_bias[h % len(call.relative_bias)]
                        s += float(relative[j - i + at.query - 1])
                    if call.bias is not None:
                        bias = call.bias
                        if isinstance(bias, BiasRows):
                            bias = bias.rows(slice(0, at.query))
                        full = bias.expand(at.batch, at.head, at.query, at.key)[b, h, i, j]
                        if call.bias.dtype == torch.bool:
                            seen &= bool(full)
                        else:
                            seen &= float(full) > -1e30
                            s += float(full)
                    if seen:
                        row[j] = s
                        score[b, h, i, j] = s
                size = {j: abs(s) if call.activation == "signed" else s for j, s in row.items()}
                total = sum(math.exp(s) for s in size.values())
                if call.sinks is not None:
                    total += math.exp(float(call.sinks[h]))
                for j, s in row.items():
                    share = math.exp(size[j]) / total
                    weight[b, h, i, j] = {
                        "softmax": share,
                        "signed": math.copysign(share, s),
                        "sigmoid": 1 / (1 + math.exp(-s)),
                        "relu": max(0.0, s),
                    }[call.activation]
    return weight, score


@over("mask", MASKS)
def test_pattern_is_what_the_loops_say(calls, mask):
    call = calls.make(sizes=(5, 7), dtype=torch.float64, **calls.masks(mask, sizes=(5, 7)))
    if mask == "high sinks":
        pytest.skip("exp(200) has no place in plain loops")
    weight, _ = looped(call)
    torch.testing.assert_close(reference.pattern(call), weight, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("activation", ["signed", "sigmoid", "relu"])
@pytest.mark.parametrize("mask", ["causal", "all at once", "right padding", "bool"])
def test_other_activations_are_what_the_loops_say(calls, activation, mask):
    masks = {k: v for k, v in calls.masks(mask, sizes=(5, 7)).items() if k != "sinks"}
    call = calls.make(sizes=(5, 7), dtype=torch.float64, activation=activation, **masks)
    weight, _ = looped(call)
    torch.testing.assert_close(reference.pattern(call), weight, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("activation", ["softmax", "signed"])
def test_every_reduction_is_what_the_loops_say(  # noqa: PLR0912, PLR0915 - one line each
    calls, activation
):
    call = calls.make(
        sizes=(9, 11),
        dtype=torch.float64,
        activation=activation,
        key_padding=torch.arange(11) >= torch.tensor([[0], [4]]),
    )
    asked = {r.name: r for r in every_reduction(call)}
    found = reference.statistics(call, list(asked.values()))
    signed, score = looped(call)
    p = signed.abs()
    batch, head, queries, keys = p.shape
    start = (0, 4)
    for b in range(batch):
        for h in range(head):
            kv = h // 2
            size = [math.hypot(*call.v[b, kv, j].tolist()) for j in range(keys)]
            for j in range(keys):
                column = sum(float(p[b, h, i, j]) for i in range(queries))
                near(found["received"][b, h, j], column)
                near(found["received_value_weighted"][b, h, j], column * size[j])
                for n in range(2):
                    r = asked["left_product"].vectors[0, h, n]
                    near(found["left_product"][b, h, n, j], float(r.double() @ signed[b, h, :, j]))
            for i in range(queries):
                row, position = p[b, h, i], i + 2
                seen = [float(s) for s in score[b, h, i] if not math.isnan(s)]
                near(found["entropy"][b, h, i], -sum(w * math.log(w) for w in row.tolist() if w))
                top = sorted(row.tolist(), reverse=True)
                near(found["largest"].weight[b, h, i].abs(), top[0])
                near(found["largest"].key[b, h, i], row.tolist().index(top[0]) if seen else -1)
                for n in range(3):
                    near(found["top_k"].weight[b, h, i, n].abs(), top[n])
                place = [abs(position - j) * float(row[j]) for j in range(keys)]
                near(found["distance"][b, h, i], sum(place))
                prompt = [int(t) for t in call.tokens[b, start[b] :]]
                q = position - start[b]
                copies = [
                    start[b] + j for j in range(1, q + 1) if q >= 0 and prompt[j - 1] == prompt[q]
                ]
                near(found["induction"][b, h, i], sum(float(row[j]) for j in copies))
                near(found["count"][b, h, i], len(copies))
                first = [float(row[start[b] + j]) for j in (0, 1)]
                near(found["first"][b, h, i], sum(first))
                for n, label in enumerate((0, 1, 2)):
                    inside = asked["segment_mass"].labels[b] == label
                    near(found["segment_mass"][b, h, i, n], float(row[inside].sum()))
                z = [float(signed[b, h, i] @ call.v[b, kv, :, c]) for c in range(6)]
                for c in range(6):
                    near(found["output"][b, h, i, c], z[c])
                near(found["result_norm"][b, h, i], math.hypot(*z))
                w_o = asked["written_norm"].w_o[h].double()
                written = (torch.tensor(z, dtype=torch.float64) @ w_o).tolist()
                near(found["written_norm"][b, h, i], math.hypot(*written))
                for n, offset in enumerate((0, 1, 3)):
                    j = position - offset
                    near(found["diagonal"][b, h, i, n], float(signed[b, h, i, j]) if j >= 0 else 0)
                if not seen:
                    assert found["lse"][b, h, i] == -torch.inf
                    continue
                sizes = [abs(s) for s in seen] if activation == "signed" else seen
                near(found["lse"][b, h, i], math.log(sum(math.exp(s) for s in sizes)))
                mean = sum(seen) / len(seen)
                near(found["moments"].mean[b, h, i], mean)
                variance = sum((s - mean) ** 2 for s in seen) / len(seen)
                near(found["moments"].variance[b, h, i], variance)
                near(found["moments"].maximum[b, h, i], max(seen))
            for x in range(3):
                for y in range(3):
                    square = p[b, h, 4 * x : 4 * x + 4, 4 * y : 4 * y + 4].sum()
                    near(found["pooled_map"][b, h, x, y], float(square))
            rows = asked["segment_to_segment"].query_labels[0]
            columns = asked["segment_to_segment"].key_labels[b]
            for x in range(2):
                for y in range(3):
                    between = p[b, h][rows == x][:, columns == y].sum()
                    near(found["segment_to_segment"][b, h, x, y], float(between))
    assert torch.equal(found["rows"], reference.pattern(call)[:, :, [0, 4, 8]])
    assert torch.equal(found["tile"], reference.pattern(call)[:, :, [0, 4, 8]][..., [0, 10]])
    pairs = torch.zeros(2, 4, 9, dtype=torch.float64)
    # (0, 4, 2) is query index 2; (1, 3, 1) is position 7 = index 5, key 5; (0, 0, 0) has no query.
    pairs[0, :, 2], pairs[1, :, 5] = p[0, :, 2, 2], p[1, :, 5, 5]
    pairs[0, :, 7] += p[0, :, 7, 0]
    torch.testing.assert_close(found["pairs"], pairs)


def near(found, expected):
    assert float(found) == pytest.approx(expected, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("tokens", [1, 2, 64, 200])
def test_a_uniform_causal_head(tokens):
    """Every query spreads evenly over the t keys it sees."""
    flat = torch.zeros(1, 1, tokens, 4, dtype=torch.float64)
    call = Attention(q=flat, k=flat, v=flat, causal=True)
    asked = [Entropy(), Distance(), KeySetMass("first", (0,)), Received(), LogSumExp(), Moments()]
    for name in ("reference", "chunked"):
        found = attention_statistics(call, [*asked, Largest()], backend=name)
        log_factorial = math.lgamma(tokens + 1)
        near(found["entropy"].mean(), log_factorial / tokens)
        near(found["distance"].mean(), (tokens - 1) / 4)
        harmonic = sum(1 / t for t in range(1, tokens + 1))
        near(found["first"].mean(), harmonic / tokens)
        near(found["received"][0, 0, 0], harmonic)
        near(found["lse"][0, 0, -1], math.log(tokens))
        assert (found["largest"].key == 0).all()
        assert (found["moments"].variance == 0).all()


def test_entropy_of_a_uniform_head_over_64_tokens_is_the_published_value():
    flat = torch.zeros(1, 1, 64, 4, dtype=torch.float64)
    call = Attention(q=flat, k=flat, v=flat, causal=True)
    assert float(reference.entropy(reference.pattern(call)).mean()) == pytest.approx(
        3.205753, abs=5e-7
    )


def test_plain_functions_agree_on_blocks_of_rows(calls):
    """The stored-pattern engine hands them a few rows at a time."""
    call = calls.make(dtype=torch.float64)
    pattern, query = reference.pattern(call), torch.arange(13)[:, None]
    key, target = torch.arange(13)[None], torch.rand(13, 13) < 0.3
    half = slice(5, 9)
    some = pattern[:, :, half]
    assert torch.equal(reference.entropy(some), reference.entropy(pattern)[:, :, half])
    assert torch.equal(reference.largest(some).key, reference.largest(pattern).key[:, :, half])
    torch.testing.assert_close(
        reference.mass(some, target[half]), reference.mass(pattern, target)[:, :, half]
    )
    torch.testing.assert_close(
        reference.distance(some, query[half], key),
        reference.distance(pattern, query, key)[:, :, half],
    )
    torch.testing.assert_close(
        reference.diagonal(some, (1,), 5), reference.diagonal(pattern, (1,), 0)[:, :, half]
    )


def test_gradients_pass_through_the_definition(calls):
    """Also with rows that see nothing, whose gradient is 0 and not NaN."""
    call = calls.make(dtype=torch.float64, **calls.masks("left padding"))
    leaves = [getattr(call, name).requires_grad_() for name in "qkv"]
    found = reference.statistics(call, every_reduction(call))
    (found["entropy"].sum() + found["output"].square().sum() + found["received"].sum()).backward()
    for leaf in leaves:
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()
        assert leaf.grad.abs().sum() > 0
