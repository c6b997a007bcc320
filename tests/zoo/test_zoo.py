"""The zoo holds what it says: every model runs, and its attentions would show a mistake."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from together import over
from torch import Tensor

import zoo

RUNS = [
    pytest.param(family, padding, id=f"{family.name}-{padding}")
    for family in zoo.FAMILIES.values()
    for padding in family.paddings
]
EVERY = [pytest.param(family, id=family.name) for family in zoo.FAMILIES.values()]

# Features that the toolkit promises to read, each of which must stay covered.
# fmt: off
NAMED = (
    "gqa", "mqa", "mla", "sliding-window", "softcap", "sinks", "relative-bias",
    "cross-attention", "alibi", "head-dim", "nope", "hybrid", "moe", "encoder", "vision",
    "audio", "encoder-decoder", "legacy", "no-sdpa", "refused", "chunked", "sparse",
    "shared-module", "windows", "gated", "two-tower",
)
# fmt: on


def peakedness(pattern: Tensor, rows: Tensor) -> float:
    """Mean over rows of the largest weight, in units of a uniform row over the visible keys."""
    real = pattern.transpose(1, 2)[rows]
    visible = (real > 0).sum(-1)
    chosen = visible > 1
    return float((real.amax(-1) * visible)[chosen].mean())


def real_output(family: zoo.Family, inputs: dict[str, Tensor], logits: Tensor) -> Tensor:
    """The rows of an output that belong to real tokens."""
    if logits.dim() < 3:
        return logits
    like = logits[:, None, :, :1]
    stack = "decoder" if "decoder_input_ids" in inputs else "encoder"
    return logits[zoo.real_positions(inputs, stack, like)]


@torch.no_grad()
@over(("family", "padding"), RUNS)
def test_runs_alike_under_every_attention(family: zoo.Family, padding: zoo.Padding):
    inputs = family.inputs(padding)
    outputs = [zoo.output(family.model(a)(**inputs)) for a in family.attentions]
    reals = [real_output(family, inputs, x) for x in outputs]
    for real in reals:
        assert real.isfinite().all()
        assert real.std() > 0
        torch.testing.assert_close(real, reals[0], atol=1e-4, rtol=1e-5)


@over(("family", "padding"), RUNS)
def test_expected_patterns_are_peaked_and_sum_to_one(family: zoo.Family, padding: zoo.Padding):
    inputs = family.inputs(padding)
    expected = family.expected(family.model(family.attentions[-1]), inputs)
    places = [(stack, layer) for stack, layer, _ in expected]
    assert places == list(family.sites if family.returned is None else family.returned)
    for stack, layer, pattern in expected:
        rows = zoo.real_positions(inputs, stack, pattern)
        assert pattern.dim() == 4
        assert peakedness(pattern, rows) > 1.5, (stack, layer)
        total = pattern.transpose(1, 2)[rows].sum(-1)
        if "sinks" in family.features:
            assert (total < 1).all()
        else:
            torch.testing.assert_close(total, torch.ones_like(total), atol=2e-6, rtol=0)


@over("family", EVERY)
def test_padding_hides_three_keys_from_the_last_row(family: zoo.Family):
    for padding in family.paddings[1:]:
        inputs = family.inputs(padding)
        for stack, _, pattern in family.expected(family.model(), inputs):
            if stack == "vision" or (stack == "cross" and "attention_mask" not in inputs):
                continue
            if stack == "encoder" and "attention_mask" not in inputs:
                continue
            rows = zoo.real_positions(inputs, stack, pattern)
            keys = slice(None, 3) if padding == "left" else slice(-3, None)
            assert rows[0].all()
            hidden = pattern[-1][:, rows[-1], keys]
            assert not hidden.any(), f"{stack} sees the padding on the {padding}"
            assert pattern[0][..., keys].any()


@over("family", EVERY)
def test_sites_are_the_calls_of_the_attention_interface(family: zoo.Family):
    """Independent of what a model returns: count and number the calls of the sdpa kernel."""
    if "sdpa" not in family.attentions:
        assert family.conventions["no-sdpa"]
        return
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    kernel, seen = ALL_ATTENTION_FUNCTIONS["sdpa"], []

    def counted(module, query, *args, **kwargs):
        seen.append((getattr(module, "layer_idx", None), query.shape[1]))
        return kernel(module, query, *args, **kwargs)

    model, inputs = family.model("sdpa"), family.inputs()
    ALL_ATTENTION_FUNCTIONS["sdpa"] = counted
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        del ALL_ATTENTION_FUNCTIONS["sdpa"]
    called = [s for s in family.sites if s[0] != "pooling"]  # a function of torch, not the kernel
    assert len(seen) == len(called)
    for (index, _), (_, layer) in zip(seen, called, strict=True):
        assert index in (None, layer)


def test_cross_attention_is_no_square():
    for family in zoo.having("cross-attention"):
        cross = [p for s, _, p in family.expected(family.model(), family.inputs()) if s == "cross"]
        assert cross
        assert all(pattern.shape[-1] != pattern.shape[-2] for pattern in cross)


def test_windows_chunks_and_picked_keys_hide_keys():
    """A row of a plain causal pattern sees all before it; these see four (three) at most."""
    for feature, most in (("sliding-window", 4), ("chunked", 4), ("sparse", 3)):
        for family in zoo.having("causal", feature):
            patterns = [p for *_, p in family.expected(family.model(), family.inputs())]
            widths = [int((pattern > 0).sum(-1).max()) for pattern in patterns]
            assert min(widths) == most, family


def test_unread_features_are_present_in_the_weights():
    """Head widths, kv heads and value widths are what the feature names say."""
    configs: dict[str, Any] = {f.name: f.model().config for f in zoo.having("causal")}
    assert configs["deepseek_v3"].v_head_dim == 12
    assert configs["deepseek_v3"].qk_head_dim == 16
    for family in zoo.having("causal", "head-dim"):
        if "mla" not in family.features:
            config = configs[family.name]
            assert config.head_dim != config.hidden_size // config.num_attention_heads
    gemma2 = configs["gemma2"]
    bare: Any = zoo.FAMILIES["gemma2"].build()
    for layer in bare.model.layers:
        layer.self_attn.attn_logit_softcapping = None
    inputs = zoo.FAMILIES["gemma2"].inputs()
    with torch.no_grad():
        change = bare(**inputs).logits - zoo.FAMILIES["gemma2"].model()(**inputs).logits
    assert gemma2.attn_logit_softcapping
    assert change.abs().max() > 0.01


def test_every_named_feature_is_covered():
    for feature in NAMED:
        assert zoo.having(feature), feature
    with pytest.raises(KeyError, match="known"):
        zoo.having("gqaa")


def test_refused_families_say_why():
    refused = zoo.having("refused")
    assert {family.name for family in refused} == {"fnet", "squeezebert", "yoso"}
    assert all(family.conventions["refused"] and not family.sites for family in refused)


def test_seeds_make_models_and_leave_the_global_state():
    family = zoo.FAMILIES["llama"]
    before = torch.random.get_rng_state()
    first, again, other = family.build(seed=1), family.build("sdpa", seed=1), family.build(seed=2)
    family.expected(again, family.inputs())
    assert torch.equal(torch.random.get_rng_state(), before)
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c) or bool((a == 1).all())  # norms start alike
    assert family.model() is family.model()
    assert family.build() is not family.build()


def test_expected_follows_the_weights_of_an_sdpa_model():
    """An edit of the model that is given shows up; its config stays sdpa."""
    family = zoo.FAMILIES["llama"]
    model: Any = family.build("sdpa")
    inputs = family.inputs()
    before = family.expected(model, inputs)[0][2]
    with torch.no_grad():
        model.get_parameter("model.layers.0.self_attn.q_proj.weight").zero_()
    after = family.expected(model, inputs)[0][2]
    uniform = torch.ones(12, 12).tril() / torch.arange(1, 13)[:, None]
    torch.testing.assert_close(after, uniform.expand_as(after))
    assert not torch.allclose(before, after, atol=0.1)
    assert model.config._attn_implementation == "sdpa"


def test_what_a_family_does_not_do_is_refused_with_its_reason():
    with pytest.raises(ValueError, match="soft cap"):
        zoo.FAMILIES["gemma2"].model("sdpa")
    with pytest.raises(ValueError, match="length"):
        zoo.FAMILIES["wav2vec2"].inputs("left")
    with pytest.raises(ValueError, match="takes no padding"):
        zoo.FAMILIES["vit"].inputs("right")
    with pytest.raises(ValueError, match="nothing of a row"):
        zoo.FAMILIES["bart"].inputs("right", length=7)
