"""Every family of the zoo, as the model itself computes it: patterns, names, nothing changed."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
import zoo
from together import over
from torch import Tensor, nn

import interp
from interp.core.errors import UnreadableAttention
from interp.model.calls.sites import softmax_sites
from interp.model.check import check_model

READ = [f for f in zoo.FAMILIES.values() if "refused" not in f.features]
RUNS = [
    pytest.param(family, attention, padding, id=f"{family.name}-{attention}-{padding}")
    for family in READ
    for attention in family.attentions
    for padding in family.paddings
]
MODELS = [pytest.param(f, a, id=f"{f.name}-{a}") for f in READ for a in f.attentions]


def plain(module: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    cached = "use_cache" in inspect.signature(module.forward).parameters
    with torch.no_grad():
        return zoo.output(module(**inputs, **({"use_cache": False} if cached else {})))


def state(module: Any) -> tuple[Any, ...]:
    """What must be as before: config, weights, modes, hooks, and transformers' registry."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry

    return (
        module.config.to_dict(),
        module.config._attn_implementation,
        {name: (x.data_ptr(), x._version) for name, x in module.state_dict(keep_vars=True).items()},
        [m.training for m in module.modules()],
        [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in module.modules()],
        dict(registry),
        dict(registry._local_mapping),
        registry.get_interface.__func__,
        torch.random.get_rng_state().tolist(),
        torch.is_grad_enabled(),
    )


@pytest.mark.slow
@over(("family", "attention", "padding"), RUNS)
def test_patterns_are_the_models_own_eager_attentions(loaded, family, attention, padding):
    model, inputs = loaded(family.name, attention), family.inputs(padding)
    cache = model.capture(inputs, ["pattern"])
    expected = family.expected(model.module, inputs)
    assert expected
    for stack, layer, want in expected:
        rows = zoo.real_positions(inputs, stack, want)
        got = cache["pattern", layer, stack]
        assert got.shape == want.shape
        error = (got - want).transpose(1, 2)[rows].abs().max()
        assert error < 2e-5, f"{stack} {layer}: {error:.1e}"


@pytest.mark.slow
@over(("family", "attention", "padding"), RUNS)
def test_logits_are_bitwise_the_untouched_models(loaded, family, attention, padding):
    model, inputs = loaded(family.name, attention), family.inputs(padding)
    before, want = state(model.module), plain(model.module, inputs)
    cache = model.capture(inputs, ["pattern", "scores", "z", "v"])
    assert torch.equal(cache.logits, want)
    with model.visited(lambda site, call, real: None):
        assert torch.equal(plain(model.module, inputs), want)
    assert torch.equal(plain(model.module, inputs), want)
    assert state(model.module) == before


@over(("family", "attention"), MODELS)
def test_sites_are_named_as_the_zoo_says_and_the_self_check_passes(loaded, family, attention):
    model = loaded(family.name, attention)
    softmaxes = softmax_sites(model.sites)
    assert [(site.stack, site.layer) for site in softmaxes] == list(family.sites)
    check = check_model(model, seed=5)
    assert check.passed
    assert max(s.pattern_error for s in check.sites) < 5e-6
    assert max(s.rounding for s in check.sites) < check.tolerance, "none is allowed more"
    assert max(s.result_error or 0.0 for s in check.sites) < 5e-6
    without = {s.site.module for s in check.sites if s.result_error is None}
    # XLNet multiplies by a parameter in an einsum: no module takes the heads' outputs
    assert bool(without) == (family.name == "xlnet")
    assert any(site.gated for site in softmaxes) == ("gated" in family.features)
    qk = all(site.has_qk for site in softmaxes)
    assert qk == ("disentangled" not in family.features), family.conventions.get("q-k")


@over("family", READ, ids=lambda f: f.name)
def test_loading_changes_nothing(family):
    module = family.model(family.attentions[-1])
    before = state(module)
    interp.load(module)
    assert state(module) == before


@over("family", READ, ids=lambda f: f.name)
def test_shapes_of_a_model_are_read_from_its_run(loaded, family):
    model, features = loaded(family.name), family.features
    site = softmax_sites(model.sites)[-1]
    kind = "encoder-decoder" if "encoder-decoder" in features else model.kind
    assert model.kind == kind
    if "causal" in features:
        assert model.kind == "causal"
        assert all(s.causal for s in model.sites)
    elif "encoder" in features and "two-tower" not in features:
        assert not any(s.causal for s in model.sites)
    if "mla" in features:
        assert (site.d_head, site.d_v, site.n_kv_heads) == (16, 12, 6)
    elif "head-dim" in features:
        assert (site.d_head, site.d_v) == (12, 12)
    if "gqa" in features:
        assert (site.n_heads, site.n_kv_heads) == (6, 2) or family.name == "falcon_gqa"
        # Falcon repeats its keys and values before it multiplies: what is read has all heads
        assert site.n_kv_heads == 6 or family.name != "falcon_gqa"
    if "mqa" in features:
        assert site.n_kv_heads == (6 if family.name == "falcon_gqa" else 1)


@pytest.mark.parametrize("family", zoo.having("refused"), ids=lambda f: f.name)
def test_what_has_no_pattern_is_refused_with_the_reason(family):
    reason = {
        "fnet": "no softmax attention",
        "squeezebert": "in another form.*sparse, banded and linear",
        "yoso": "in another form.*linear attention cannot be read",
    }[family.name]
    with pytest.raises(UnreadableAttention, match=reason) as error:
        interp.load(family.model())
    assert "\n" not in str(error.value)


def test_a_hybrid_says_which_attention_is_not_softmax(loaded):
    """Qwen3-Next's linear attention and Jamba's state-space layers are read as maps."""
    for name, kind in (("jamba", "state space per channel"), ("qwen3_next", "gated delta rule")):
        assert loaded(name).unread == ()
        assert [site.kind for site in loaded(name).sites] == [kind, "softmax", kind]


def legacy_sdpa(name: str) -> nn.Module:
    """The same weights under the family's own call of `scaled_dot_product_attention`."""
    eager: Any = zoo.FAMILIES[name].model("eager")
    config = copy.deepcopy(eager.config)
    with torch.random.fork_rng(devices=[]):
        model = type(eager)._from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    model.load_state_dict(eager.state_dict())
    return model.eval()


@pytest.mark.parametrize("padding", ["left", "right", None])
@pytest.mark.parametrize("name", ["falcon", "falcon_gqa"])
def test_falcons_own_fused_call_is_read(name, padding):
    """Its own attentions under sdpa are wrong (capture.md 1.5), so the eager model is the truth."""
    family, module = zoo.FAMILIES[name], legacy_sdpa(name)
    assert module.config._attn_implementation == "sdpa"
    model, inputs = interp.load(module), family.inputs(padding)
    cache = model.capture(inputs, ["pattern", "z"])
    assert torch.equal(cache.logits, plain(module, inputs))
    for stack, layer, want in family.expected(family.model("eager"), inputs):
        rows = zoo.real_positions(inputs, stack, want)
        got = cache["pattern", layer, stack]
        assert (got - want).transpose(1, 2)[rows].abs().max() < 2e-5


def test_falcons_bias_under_its_own_fused_call():
    """Eager adds it twice (test_by_name): the truth here is the distance of keys times slopes."""
    model = interp.load(legacy_sdpa("falcon_alibi"))
    cache = model.capture(zoo.FAMILIES["falcon_alibi"].inputs(), ["q", "k", "scores", "z", "v"])
    q, k = cache["q", 0], cache["k", 0]
    bias = cache["scores", 0] - q @ k.transpose(-1, -2) * 8**-0.5
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]) * 8**-0.5
    steps = bias[:, :, -1, 1:] - bias[:, :, -1, :-1]
    torch.testing.assert_close(steps, slopes[None, :, None].expand_as(steps), atol=2e-6, rtol=0)
    z = cache["scores", 0].softmax(-1) @ cache["v", 0]
    torch.testing.assert_close(cache["z", 0], z, atol=2e-6, rtol=1e-5)
