"""Maps against attention of other packages, where they are installed.

x-transformers: its `Attend`, on the rule's own queries, keys and values. flash-linear-attention:
its reference code in plain PyTorch, read file by file, since the package itself needs Triton. The
entmax package is in `test_variant_formulas`, mambapy in `tests/model/test_planted_channels.py`.

    pip install --no-deps x-transformers torch-einops-utils einx frozendict loguru fla-core
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from planted.test_variant_formulas import HEADS, given
from torch.nn import functional as F
from zoo.mixers import build

import interp
from interp.model.calls.map_call import MapCall

CLOSE = {"atol": 2e-5, "rtol": 2e-4}  # the packages compute in float32


def flash_reference(operation: str) -> Any:
    """Reference code of one operation of flash-linear-attention."""
    found = importlib.util.find_spec("fla")
    if found is None or not found.submodule_search_locations:
        pytest.skip("flash-linear-attention (fla-core) is not installed")
    file = Path(next(iter(found.submodule_search_locations))) / "ops" / operation / "naive.py"
    spec = importlib.util.spec_from_file_location(f"fla_{operation}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first(x: torch.Tensor) -> torch.Tensor:
    """Positions before heads, as some of its functions take them."""
    return x.transpose(1, 2)


FLASH = {
    "retention": lambda t, rule: flash_reference("retention").naive_retention(t.q, t.k, t.v),
    "gated_linear": lambda t, rule: first(
        flash_reference("gla").naive_recurrent_gla(
            first(t.q), first(t.k), first(t.v), first(t.more["log_decay"])
        )[0]
    ),
    "delta_rule": lambda t, rule: (
        flash_reference("delta_rule").delta_rule_recurrence(t.q, t.k, t.v, t.more["rate"])[0]
        * t.q.shape[-1] ** 0.5  # the package scales queries, DeltaNet's paper does not
    ),
    "forgetting": lambda t, rule: first(
        flash_reference("forgetting_attn").naive_forgetting_attn(
            first(t.q), first(t.k), first(t.v), F.logsigmoid(rule.forget(t.x))
        )
    ),
    "stick_breaking": lambda t, rule: first(
        flash_reference("stickbreaking_attn").naive_stickbreaking_attn(
            first(t.q), first(t.k), first(t.v)
        )[0]
    ),
}


@pytest.mark.parametrize("name", FLASH)
@torch.no_grad()
def test_maps_times_values_are_what_flash_linear_attention_computes(name) -> None:
    rule, tensors = given(name)
    rule, tensors = rule.float(), rule.float().prepare(tensors.x.float())
    product = rule.rows(tensors, tensors.every) @ tensors.v
    torch.testing.assert_close(product, FLASH[name](tensors, rule), **CLOSE)


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5"])
@torch.no_grad()
def test_gated_delta_maps_are_those_of_flash_linear_attention(family, monkeypatch) -> None:
    reference = flash_reference("gated_delta_rule").naive_recurrent_gated_delta_rule
    module = build(family)
    code = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    seen: list[tuple[Any, Any]] = []
    own = code.torch_chunk_gated_delta_rule

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return own(*args, **kwargs)

    monkeypatch.setattr(code, "torch_chunk_gated_delta_rule", watched)
    model = interp.load(module, name=family)
    calls: list[MapCall] = []
    seen.clear()

    def keep(site: Any, call: Any, real: Any) -> None:
        if isinstance(call, MapCall) and call.kind == "gated delta rule":
            calls.append(call)

    model.read([list(range(5, 24))], keep)
    assert len(calls) == len(seen) == 3
    for call, (args, kwargs) in zip(calls, seen, strict=True):
        q, k, v = args
        q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], 2) for x in (q, k))
        q, k = (
            x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + 1e-6) for x in (q, k)
        )
        want, _ = reference(q, k, v, kwargs["beta"], kwargs["g"])
        torch.testing.assert_close(call.mapped(), first(want), **CLOSE)


def attend(**options: Any) -> Any:
    """Causal attention of x-transformers, without its projections."""
    package = pytest.importorskip("x_transformers.attend", reason="x-transformers is not installed")
    return package.Attend(causal=True, heads=HEADS, dropout=0.0, **options).eval()


def _talking(rule: Any) -> Any:
    other = attend(pre_talking_heads=True, post_talking_heads=True)
    # before the softmax the package adds the mixed scores to the scores
    for name, weight in (("pre", rule.before - torch.eye(HEADS)), ("post", rule.behind)):
        getattr(other, f"{name}_softmax_talking_heads").weight.copy_(weight[..., None, None])
    return other


def _sink(rule: Any) -> Any:
    other = attend(head_learned_sink=True)
    other.head_attn_sink.copy_(rule.sink)
    return other


X_TRANSFORMERS = {
    "plain_softmax": lambda rule: attend(),
    "talking_heads": _talking,
    "sink_logit": _sink,
    "top_k": lambda rule: attend(sparse_topk=3),
    "signed": lambda rule: attend(cog_signed=True),
    "hard": lambda rule: attend(hard=True),
    "off_by_one": lambda rule: attend(add_zero_kv=True),
}


@pytest.mark.parametrize("name", X_TRANSFORMERS)
@torch.no_grad()
def test_maps_times_values_are_what_x_transformers_computes(name) -> None:
    rule, tensors = given(name)
    other = X_TRANSFORMERS[name](rule).double()
    out, _ = other(tensors.q, tensors.k, tensors.v)
    product = rule.rows(tensors, tensors.every) @ tensors.v
    torch.testing.assert_close(product, out, **CLOSE)
