"""What a caller may get wrong, and the one line that says so."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from inspect import signature
from typing import Any

import pytest
import torch
from together import over

import interp_kernels.reductions
from interp_kernels import (
    Attention,
    Entropy,
    InvalidAttention,
    InvalidReduction,
    KernelError,
    LeftProduct,
    LogSumExp,
    PairMass,
    PooledMap,
    Reduction,
    ResultNorm,
    RightProduct,
    Rows,
    SegmentMass,
    Segments,
    SegmentToSegment,
    Tile,
    TopK,
    attention_statistics,
    estimate_memory,
)
from interp_kernels.checks import adjoining, longest


def call(**changes):
    given = {
        "q": torch.randn(2, 4, 5, 8),
        "k": torch.randn(2, 2, 7, 8),
        "v": torch.randn(2, 2, 7, 6),
        "causal": True,
    }
    return Attention(**{**given, **changes})


@over(
    ("changes", "words"),
    [
        ({"q": torch.randn(4, 5, 8)}, r"q has shape \[4, 5, 8\]; expected 4 axes"),
        ({"v": torch.randn(2, 2, 6, 6)}, "differ on the key axis"),
        ({"v": torch.randn(2, 1, 7, 6)}, "differ on the kv_head axis"),
        ({"k": torch.randn(2, 2, 7, 4)}, "q has head size 8, k has 4"),
        ({"q": torch.randn(3, 4, 5, 8)}, "q has batch 3, k has batch 2"),
        ({"q": torch.randn(2, 3, 5, 8)}, "3 query heads cannot share 2 key-value heads"),
        ({"q": torch.randn(2, 4, 5, 8).bfloat16()}, "q is torch.bfloat16, k is torch.float32"),
        ({"scale": float("nan")}, "scale is nan"),
        ({"window": 0}, "window is 0; expected at least 1 key"),
        ({"softcap": -1.0}, "softcap is -1.0"),
        ({"offset": 1.5}, "offset is 1.5"),
        ({"activation": "tanh"}, "activation 'tanh' is not known; known: softmax"),
        ({"bias": torch.zeros(2, 4, 5, 6)}, "does not broadcast to"),
        ({"bias": torch.zeros(5, 7, dtype=torch.int64)}, "bias is torch.int64"),
        ({"bias": torch.full((5, 7), torch.nan)}, "bias holds nan"),
        ({"bias": torch.full((5, 7), torch.inf)}, "bias holds inf"),
        ({"key_padding": torch.ones(2, 7)}, "key_padding is torch.float32"),
        ({"key_padding": torch.ones(2, 5, dtype=torch.bool)}, r"expected bool \[2, 7\]"),
        ({"query_padding": torch.ones(2, 7, dtype=torch.bool)}, r"expected bool \[2, 5\]"),
        ({"sinks": torch.zeros(2)}, "expected one float per head"),
        ({"sinks": torch.tensor([0, 0, torch.nan, 0])}, "sinks hold nan at head 2"),
        ({"sinks": torch.zeros(4), "activation": "relu"}, "sinks are logits of a softmax"),
        ({"tokens": torch.zeros(2, 7)}, "tokens are torch.float32"),
        ({"tokens": torch.zeros(2, 5, dtype=torch.int64)}, r"whole numbers \[2, 7\]"),
        ({"ranges": torch.zeros(2, 5, 2)}, r"ranges are torch.float32 .*expected int64 \[2 or 1, "),
        ({"ranges": torch.full((1, 5, 2), 9)}, r"ranges go from 9 to 9; there are 7 keys"),
        ({"relative_bias": torch.zeros(3, 11)}, r"relative_bias is .* \[3, 11\]; expected a float"),
        ({"relative_bias": torch.full((1, 11), torch.inf)}, r"relative_bias holds NaN or infinity"),
        ({"start": (0, 9)}, r"start is \[0, 9\]; expected 2 positions"),
        ({"start": (0,)}, r"start is \[0\]; expected 2 positions"),
    ],
)
def test_calls_that_do_not_fit(changes, words):
    with pytest.raises(InvalidAttention, match=words) as caught:
        call(**changes)
    assert isinstance(caught.value, KernelError)
    assert "\n" not in str(caught.value)


@over("value", [torch.nan, torch.inf, -torch.inf])
@over(("name", "axis"), [("q", "head"), ("k", "kv_head"), ("v", "kv_head")])
@over("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_non_finite_values_are_placed(name, axis, value, dtype):
    tensors = {n: getattr(call(), n).to(dtype) for n in "qkv"}
    tensors[name][1, 1, 3, 2] = value
    where = f"{name} holds {value} at batch 1, {axis} 1, position 3"
    with pytest.raises(InvalidAttention, match=where):
        call(**tensors)
    expanded = tensors[name][1:, 1:2].expand(2, 2, -1, -1)
    shaped = {**tensors, name: expanded if name != "q" else expanded.repeat(1, 2, 1, 1)}
    with pytest.raises(InvalidAttention, match=f"{name} holds {value} at batch 0, {axis} 0"):
        call(**shaped)
    # As models lay them out: a token's heads side by side, or a projection's parts.
    tokens = tensors[name].transpose(1, 2).contiguous()
    for beside in (
        tokens,
        torch.cat([torch.zeros_like(tokens), tokens], -2)[:, :, -tokens.shape[2] :],
    ):
        with pytest.raises(InvalidAttention, match=where):
            call(**{**tensors, name: beside.transpose(1, 2)})


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("batch", [1, 3])
def test_parts_of_one_projection_are_read_together(number, batch):
    """All three in one go, as they lie in memory; the answers are those of copies."""
    made = torch.randn(batch, 5, 3 * 24)
    q, k, v = parts = [x.view(batch, 5, 4, 6).transpose(1, 2) for x in made.chunk(3, -1)]
    assert adjoining(*parts) is not None
    elsewhere = [x.view(batch, 5, 4, 6).transpose(1, 2) for x in made.clone().chunk(3, -1)]
    strangers = [[k, q, v], [q, k, q], [q, elsewhere[1], v], [q, k, v.clone()]]
    for others in (*strangers, [q, k[:, :2], v[:, :2]]):
        assert adjoining(*others) is None
    parts[number][-1, 2, 3, 1] = 50
    lengths = made.unflatten(-1, (3, 24)).norm(dim=-1).amax((0, 1))
    torch.testing.assert_close(torch.tensor(longest(*parts)), lengths)
    torch.testing.assert_close(torch.tensor(longest(q, k.clone(), v)), lengths)
    assert longest(*parts)[number] > 50
    parts[number][-1, 2, 3, 1] = -torch.inf
    name, axis = [("q", "head"), ("k", "kv_head"), ("v", "kv_head")][number]
    words = f"{name} holds -inf at batch {batch - 1}, {axis} 2, position 3"
    with pytest.raises(InvalidAttention, match=words):
        Attention(q=q, k=k, v=v, causal=True)


def test_scores_beyond_float16_are_placed():
    q = torch.zeros(1, 2, 300, 8, dtype=torch.float16)
    q[0, 1, 270, 0] = 30_000
    k = torch.zeros(1, 1, 3, 8, dtype=torch.float16)
    k[0, 0, 2, 0] = 7
    words = r"score of query 270 and key 2 \(batch 0, head 1\) is 7.42e\+04"
    with pytest.raises(InvalidAttention, match=words):
        Attention(q=q, k=k, v=k, causal=True)
    Attention(q=q.float(), k=k.float(), v=k.float(), causal=True)
    Attention(q=q, k=k, v=k, causal=True, softcap=50.0)
    # Norms alone look too large here, but no score is.
    turned = torch.zeros_like(k)
    turned[0, 0, 2, 1] = 7
    Attention(q=q, k=turned, v=k, causal=True)


def test_large_numbers_are_no_infinities():
    """Their squares are, in float32."""
    q, k, v = (torch.randn(1, 2, 5, 8) for _ in range(3))
    v[0, 1, 3, 2] = 1e30
    Attention(q=q, k=k, v=v, causal=False)
    k[0, 1, 3] = torch.eye(8)[1] * 1e25
    q[0, 1] = torch.eye(8)[2] * 1e25
    Attention(q=q, k=k, v=v, causal=False)
    q[0, 1, 4, 1] = 1e15
    with pytest.raises(InvalidAttention, match=r"score of query 4 and key 3 .* is 3.54e\+39"):
        Attention(q=q, k=k, v=v, causal=False)


@over(
    ("asked", "words"),
    [
        (["entropy"], "'entropy' is not a reduction"),
        ([Entropy], "is not a reduction; make one, such as Entropy"),
        ([TopK(0)], "k is 0"),
        ([TopK(2), TopK(3)], "2 reductions are named 'top_k'; give each its name="),
        ([PooledMap(0)], "block is 0"),
        ([Rows((5,))], r"rows \(5,\) do not all lie in 0..4"),
        ([Tile((0,), (7,))], "exceed 5 x 7"),
        ([SegmentMass(torch.zeros(2, 5, dtype=torch.int64), 1)], "one per key"),
        ([SegmentMass(torch.zeros(2, 7), 1)], "expected whole numbers"),
        (
            [SegmentToSegment(torch.zeros(1, 7).long(), torch.zeros(1, 7).long(), 1, 1)],
            "one per query",
        ),
        ([LeftProduct(torch.zeros(1, 1, 2, 7))], "n, 5"),
        ([RightProduct(torch.zeros(2, 3, 7, 1))], r"vectors are \[2, 3, 7, 1\]"),
        ([ResultNorm(torch.zeros(2, 6, 9))], r"w_o is \[2, 6, 9\]; expected \[4, 6, d_model\]"),
        ([PairMass("pairs", torch.zeros(3, 2).long())], r"numbers \[pair, 3\]"),
    ],
)
def test_reductions_that_do_not_fit(asked, words, backend):
    with pytest.raises(InvalidReduction, match=words):
        attention_statistics(call(), asked, backend=backend)


def test_unnormalised_weights_have_no_log_sum_exp(backend):
    with pytest.raises(InvalidReduction, match="relu weights are not normalised"):
        attention_statistics(call(activation="relu"), [LogSumExp()], backend=backend)


WRONG = [
    None,
    [1, 2],
    "a",
    3,
    -1,
    2.5,
    {},
    object(),
    torch.zeros(0),
    torch.zeros(2, 4, 5, 8).int(),
    torch.empty(2, 4, 5, 8, device="meta"),
    torch.randn(2, 4, 5, 8).to_sparse(),
]
NEEDED = {
    "name": "x",
    "predicate": lambda query, key, tokens: query == key,
    "keys": (0, 1),
    "rows": (0,),
    "pairs": torch.tensor([[0, 1, 1]]),
    "offsets": (0,),
}


def computed(kind: type[Reduction], **options: Any) -> Any:
    return attention_statistics(call(), [kind(**options)], backend="reference")


def every_call(wrong: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield every function of the kernels with a wrong value for one of its arguments."""
    yield from ((call, {name: wrong}) for name in signature(Attention).parameters)
    yield call, {"segments": Segments(("text",), wrong)}
    given = {"attention": call(), "reductions": [Entropy()], "mode": "observer"}
    for name in (*given, "backend", "block", "memory", "output", "lse"):
        yield attention_statistics, {**given, name: wrong}
    for name in ("shape", "reductions"):
        yield estimate_memory, {"shape": call(), "reductions": [Entropy()], name: wrong}
    for kind in vars(interp_kernels.reductions).values():
        if isinstance(kind, type) and issubclass(kind, Reduction) and kind is not Reduction:
            taken = signature(kind).parameters
            needed = {n: NEEDED.get(n, 1) for n, p in taken.items() if p.default is p.empty}
            yield from ((partial(computed, kind), {**needed, name: wrong}) for name in taken)


def test_no_wrong_type_ends_in_an_error_of_python() -> None:
    raw = []
    for wrong in WRONG:
        for function, options in every_call(wrong):
            try:
                function(**options)
            except KernelError:
                continue
            except Exception as error:
                raw.append((function, options, error))
    assert not raw
