"""Fresh random calls every run: sizes, groups, masks and values nobody thought of."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interp_kernels import Attention
from interp_kernels.self_test import every_reduction


@st.composite
def attention(draw: st.DrawFn) -> Attention:
    batch, kv_head, group = (draw(st.integers(1, 3)) for _ in range(3))
    query, key = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    d, d_v = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    head = kv_head * group
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.1, 1.0, 3.0]))

    def normal(*shape: int) -> torch.Tensor:
        return spread * torch.randn(*shape, generator=random)

    def maybe(value: Any) -> Any:
        return value if draw(st.booleans()) else None

    activation = draw(st.sampled_from(["softmax", "softmax", "signed", "sigmoid", "relu"]))
    bias_shape = [draw(st.sampled_from([1, n])) for n in (batch, head, query, key)]
    bias = normal(*bias_shape).masked_fill(
        torch.rand(*bias_shape, generator=random) < 0.2, torch.finfo(torch.float32).min
    )
    return Attention(
        q=normal(batch, head, query, d),
        k=normal(batch, kv_head, key, d),
        v=normal(batch, kv_head, key, d_v),
        causal=draw(st.booleans()),
        window=maybe(draw(st.integers(1, 45))),
        bias=maybe(draw(st.sampled_from([bias, bias > 0]))),
        key_padding=maybe(torch.rand(batch, key, generator=random) < 0.7),
        query_padding=maybe(torch.rand(batch, query, generator=random) < 0.7),
        softcap=maybe(draw(st.floats(0.5, 5.0))),
        sinks=maybe(normal(head)) if activation == "softmax" else None,
        offset=draw(st.sampled_from([None, 0, -3, 4])),
        activation=activation,
    )


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(call=attention(), block=st.sampled_from([None, 1, 3, 16]))
def test_fresh_calls_conform(calls, conforms, call, block):
    asked = [r for r in every_reduction(call) if r.name not in ("induction", "count")]
    # A softmax over scores of size s carries their rounding, s ulps of it.
    reach = float(call.q.abs().amax() * call.k.abs().amax()) * call.q.shape[-1] ** 0.5
    conforms(call, asked, ulps=8 + reach, block=block)
