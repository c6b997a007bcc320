"""Channel maps, sparse softmaxes and parallel mixers: against direct formulas and other paths."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from zoo.mixers import FAMILIES, build
from zoo.sparse import build_sparse

import interp
from interp.core.errors import PromptError, UnreadableAttention
from interp.core.prompts import Prompts
from interp.heads.declaration import bound
from interp.heads.engine import reduce_patterns
from interp.model.calls import map_call
from interp.model.calls.call import Call
from interp.model.calls.map_call import MapCall, absolute_share
from interp.model.calls.sites import Site
from interp.model.mixers.banded import BandedCall
from interp.model.mixers.channel_call import ChannelCall, head_width
from interp.model.mixers.mamba import SelectiveScan

IDS = torch.randint(5, 60, (2, 21), generator=torch.Generator().manual_seed(3))
CHANNELS = ["mamba", "falcon_mamba", "jamba", "zamba", "rwkv", "recurrent_gemma"]


@pytest.fixture(scope="module")
def tiny_mixer():
    made: dict[str, Any] = {}

    def get(family: str):
        if family not in made:
            made[family] = interp.load(build(family), name=family)
        return made[family]

    return get


def calls_of(model, inputs: Any) -> dict[Site, Call]:
    found: dict[Site, Call] = {}
    model.read(inputs, lambda site, call, real: found.update({site: call}), stage="mix")
    return found


def test_heads_of_channels_divide_them_and_their_groups():
    assert head_width(1536) == 64
    assert head_width(64) == 8
    assert head_width(64, groups=16) == 4
    assert head_width(7) == 1


@torch.no_grad()
def test_rows_of_a_scan_are_those_of_the_sum_over_states():
    """The anchored products equal the definition, for steps so large that decays underflow."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    length = 70  # several runs of rows
    dt = torch.nn.functional.softplus(draw(2, 4, 3, length) * 4)
    dt[0, 0] *= 100
    scan = SelectiveScan(
        u=draw(2, 4, length, 3),
        dt=dt,
        a=-draw(4, 3, 5).exp(),
        b=draw(2, 2, length, 5),
        c=draw(2, 2, length, 5),
        d=draw(4, 3),
    )
    steps = dt.double().cumsum(-1)
    gap = (steps[..., :, None] - steps[..., None, :]).clamp_min(0)  # batch head channel i j
    b, c = (x.double().repeat_interleave(2, 1) for x in (scan.b, scan.c))
    exact = torch.zeros(2, 4, 3, length, length, dtype=torch.float64)
    for n in range(5):
        decay = torch.exp(gap * scan.a.double()[None, :, :, n, None, None])
        exact += decay * c[:, :, None, :, None, n] * b[:, :, None, None, :, n]
    exact = (exact * dt.double()[..., None, :]).tril()
    exact += torch.diag_embed(scan.d.double()[..., None].expand(4, 3, length))
    found = scan.rows(torch.arange(length), slice(None))
    assert float((found - exact).abs().max()) < 1e-4 * float(exact.abs().max())
    some = torch.tensor([69, 3, 40, 41, 0])
    torch.testing.assert_close(scan.rows(some, slice(1, 2)), found[:, 1:2, :, some])
    z = torch.einsum("bhcij,bhjc->bhic", exact, scan.u.double())
    assert float((scan.output() - z).abs().max()) < 1e-4 * float(z.abs().max())


@torch.no_grad()
@pytest.mark.parametrize("family", CHANNELS)
def test_patterns_are_means_over_channels_of_absolute_shares(tiny_mixer, family):
    for site, call in calls_of(tiny_mixer(family), IDS.tolist()).items():
        if site.kind == "softmax":
            continue
        assert isinstance(call, ChannelCall)
        maps = call.map()
        assert maps.shape == (2, site.n_heads, site.d_v, 21, 21)
        assert not maps.triu(1).any()
        share = absolute_share(maps).mean(2)
        torch.testing.assert_close(call.pattern(), share)
        torch.testing.assert_close(share.sum(-1), torch.ones_like(share.sum(-1)))
        some = torch.tensor([20, 3, 11])
        torch.testing.assert_close(call.map(some), maps[:, :, :, some], atol=1e-6, rtol=1e-5)
        assert "channels" in site.about
        if family == "rwkv":
            torch.testing.assert_close(maps.sum(-1), torch.ones_like(maps.sum(-1)))
            assert bool((maps >= 0).all())


@torch.no_grad()
@pytest.mark.parametrize("family", ["mamba", "rwkv", "recurrent_gemma", "kimi_linear", "falcon_h1"])
def test_statistics_streamed_in_blocks_are_those_of_the_whole_map(tiny_mixer, family, monkeypatch):
    model = tiny_mixer(family)
    names = ["entropy", "induction", "previous_token"]

    def scores():
        table = interp.score(model, names, IDS.tolist(), null="none").to_pandas()
        return table.set_index(["metric", "stack", "layer", "head"]).score

    whole = scores()
    monkeypatch.setattr(map_call, "ENTRIES", 1500)
    assert float((whole - scores()).abs().max()) < 1e-6
    for site, call in calls_of(model, IDS.tolist()).items():
        previous = call.pattern().diagonal(-1, 2, 3).mean((0, 2))
        for head in range(site.n_heads):
            found = whole["previous_token", site.stack, site.layer, head]
            assert found == pytest.approx(float(previous[head]), abs=1e-6)


@pytest.mark.parametrize("family", ["mamba2", "mamba", "recurrent_gemma", "rwkv", "qwen3_next"])
def test_what_mixes_positions_before_the_map_is_stated(tiny_mixer, family) -> None:
    said = {site.about for site in tiny_mixer(family).sites if site.kind != "softmax"}
    before = "a mix with the position before" if family == "rwkv" else "a short convolution"
    assert said
    assert all(f"values after {before}" in about for about in said)


def test_mixers_beside_softmax_attention_have_a_stack_of_their_own(tiny_mixer):
    names = [site.name for site in tiny_mixer("falcon_h1").sites]
    assert names == ["mamba.0", "decoder.0", "mamba.1", "decoder.1"]
    assert [s.kind for s in tiny_mixer("zamba").sites] == FAMILIES["zamba"][2]


@torch.no_grad()
def test_a_gate_of_zero_leaves_the_map_readable_and_the_result_zero():
    """Before the gate z is the recurrence itself, not the gated input divided by the gate."""
    module: Any = build("mamba")
    with torch.no_grad():
        for layer in module.backbone.layers:
            layer.mixer.in_proj.weight[64:] = 0
    model = interp.load(module, name="gateless")
    cache = model.capture(IDS.tolist(), ["z", "result", "map", "v"], layers=0)
    assert not cache["z", 0].any()
    assert not cache["result", 0].any()
    mixed: list[torch.Tensor] = []
    model.read(IDS.tolist(), lambda site, call, real: mixed.append(call.z), stage="mix")
    assert float(mixed[0].abs().max()) > 0.1
    z = torch.einsum("bhcij,bhjc->bhic", cache["map", 0], cache["v", 0])
    torch.testing.assert_close(z, mixed[0], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_cache_of_an_unknown_layout_and_a_fused_kernel_are_named(tiny_mixer):
    from interp.model.mixers.mixer import refuse_state

    module: Any = tiny_mixer("mamba").module
    with pytest.raises(UnreadableAttention, match="unknown layout \\(dict"):
        refuse_state(module.backbone.layers[0].mixer, {"cache_params": {}})
    model = interp.load(build("mamba"), name="fused")
    mixer: Any = model.module.get_submodule("backbone.layers.0.mixer")
    mixer.in_proj.forward = lambda x: torch.nn.functional.linear(x, mixer.in_proj.weight)
    whole, mixer.forward = mixer.forward, None

    def fused(hidden_states, **kwargs):  # runs the input projection outside its module
        return mixer.out_proj(torch.zeros(*hidden_states.shape[:2], 64))

    mixer.forward = fused
    with pytest.raises(UnreadableAttention, match="ran without its part in_proj"):
        calls_of(model, IDS.tolist())
    mixer.forward = whole


# --- sparse and mixed softmaxes ------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("family", ["longformer", "big_bird", "deberta_talking"])
def test_sparse_layers_are_read_with_their_identity(family):
    model = interp.load(build_sparse(family), name=family)
    checked = interp.model.check_model(model)
    for s in checked.sites:
        assert s.site.kind != "softmax"
        assert s.pattern_error < 1e-5
        assert s.result_error is not None
        assert s.result_error < 1e-5
        assert s.output_error is not None
        assert s.output_error < 1e-5


@torch.no_grad()
def test_longformer_maps_are_the_families_bands_and_global_rows():
    module: Any = build_sparse("longformer")
    model = interp.load(module, name="longformer")
    ids = IDS[:, :18]
    flags = torch.zeros_like(ids)
    flags[0, [0, 5]] = 1
    flags[1, 7] = 1
    inputs = {"input_ids": ids, "global_attention_mask": flags}
    calls = calls_of(model, inputs)
    own = module(**inputs, output_attentions=True)
    for (_, call), band, far in zip(
        calls.items(), own.attentions, own.global_attentions, strict=True
    ):
        assert isinstance(call, BandedCall)
        found = call.map()
        assert found.shape == (2, 4, 18, 18)
        expected = torch.zeros_like(found)
        side, most = 2, 2  # of the window, and of global tokens
        for b in range(2):
            marked = flags[b].nonzero()[:, 0].tolist()
            for i in range(18):
                for r in range(-side, side + 1):
                    if 0 <= i + r < 18:
                        expected[b, :, i, i + r] += band[b, :, i, most + side + r]
                for at, g in enumerate(marked):
                    expected[b, :, i, g] += band[b, :, i, at]
            for at, g in enumerate(marked):
                expected[b, :, g] = far[b, :, :18, at]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(call.mapped(), call.z, atol=1e-5, rtol=1e-4)
        assert torch.equal(found > 0, call.visible().expand_as(found) & (found > 0))


@torch.no_grad()
def test_big_bird_counts_its_first_block_again_and_stays_sparse():
    module: Any = build_sparse("big_bird")
    model = interp.load(module, name="big_bird")
    assert module.bert.attention_type == "block_sparse"
    ids = torch.randint(5, 60, (1, 34), generator=torch.Generator().manual_seed(1)).tolist()
    own = module(torch.tensor(ids), output_attentions=True).attentions
    for (_, call), returned in zip(calls_of(model, ids).items(), own, strict=True):
        rows = call.map()
        torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows.sum(-1)))
        torch.testing.assert_close(rows @ call.v, call.z, atol=1e-5, rtol=1e-4)
        wrong = returned[:, :, :34, :34] @ call.v  # what the family returns gives another output
        assert float((wrong - call.z).abs().max()) > 0.01 * float(call.z.abs().max())
    with pytest.raises(PromptError, match="at most 28 tokens, and this one has 9"):
        model.capture([ids[0][:9]], ["pattern"])
    assert module.bert.attention_type == "block_sparse"
    table = interp.score(model, ["entropy"], null="none")  # its own prompts are long enough
    assert set(table.to_pandas()["kind"]) == {"block sparse softmax"}
    assert module.bert.attention_type == "block_sparse"


@torch.no_grad()
def test_talking_heads_rows_sum_to_the_rows_of_their_mixture():
    module: Any = build_sparse("deberta_talking")
    model = interp.load(module, name="talking")
    own = module(IDS, output_attentions=True).attentions
    for (site, call), returned in zip(calls_of(model, IDS.tolist()).items(), own, strict=True):
        assert isinstance(call, MapCall)
        torch.testing.assert_close(call.map(), returned)
        inner = module.get_submodule(site.module).self
        sums = inner.head_weights_proj.weight.sum(1)
        assert call.map().sum(-1).mean((0, 2)).tolist() == pytest.approx(sums.tolist(), abs=1e-4)
        single = call.part("softmax")
        torch.testing.assert_close(single.sum(-1), torch.ones_like(single.sum(-1)))
    plain = interp.load(build_sparse("deberta"), name="plain")
    assert {s.kind for s in plain.sites} == {"softmax"}


@torch.no_grad()
@pytest.mark.parametrize("family", ["longformer", "deberta_talking"])
def test_padding_changes_no_sparse_map(family):
    model = interp.load(build_sparse(family), name=family)
    short, long = IDS[0, :8].tolist(), IDS[1].tolist()
    names = [bound("entropy")]
    (single,) = reduce_patterns(model, Prompts((tuple(short),)), names)
    for side in ("left", "right"):
        both = Prompts((tuple(short), tuple(long)), padding=side)
        (padded,) = reduce_patterns(model, both, names)
        for site in model.sites:
            assert float((padded.of(site)[0] - single.of(site)[0]).abs().max()) < 1e-5


@torch.no_grad()
def test_half_of_the_heads_of_convbert_are_dynamic_convolutions():
    module: Any = build_sparse("convbert")
    model = interp.load(module, name="convbert")
    kernels: list[torch.Tensor] = []
    for layer in module.convbert.encoder.layer:
        layer.attention.self.conv_kernel_layer.register_forward_hook(
            lambda m, args, out: kernels.append(out.reshape(*IDS.shape, 2, 5).softmax(-1))
        )
    own = module(IDS, output_attentions=True).attentions
    calls = calls_of(model, IDS.tolist()).values()
    for call, returned, kernel in zip(calls, own, kernels[: len(own)], strict=True):
        rows = call.map()
        torch.testing.assert_close(rows[:, :2], returned)
        for i in range(IDS.shape[1]):
            for j in range(IDS.shape[1]):
                near = abs(j - i) <= 2
                wanted = kernel[:, i, :, j - i + 2] if near else torch.zeros(len(IDS), 2)
                torch.testing.assert_close(rows[:, 2:, i, j], wanted)
    mask = torch.ones_like(IDS)
    mask[0, -2:] = 0
    with pytest.raises(UnreadableAttention, match="run prompts of one length together"):
        model.capture({"input_ids": IDS, "attention_mask": mask}, ["map"])


def test_sinks_of_gpt_oss_are_read_as_one_softmax_whose_rows_sum_to_less():
    config = transformers.GptOssConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = transformers.GptOssForCausalLM._from_config(config, attn_implementation="eager")
    model = interp.load(module.eval(), name="sinks")
    assert {s.kind for s in model.sites} == {"softmax"}
    assert bool((model.capture(IDS.tolist(), ["pattern"])["pattern", 0].sum(-1) < 0.999).all())


# --- hybrids --------------------------------------------------------------------------------------


def test_experiments_measures_and_weights_of_a_hybrid_read_its_softmax_layers(tiny_mixer):
    model = tiny_mixer("bamba")
    names = ["sink", "direct_effect", "copy_suppression", "key_rank_before_rotary", "qk_norm"]
    table = interp.score(model, names, null="none")
    frame = table.to_pandas()
    assert set(frame.layer) == {1}
    assert set(frame["kind"]) == {"softmax"}
    for name in names:
        about = table.provenance["bamba", name]
        assert about["skipped"] == (
            "Only softmax layers were read; skipped because they are not one softmax: "
            "decoder.0, decoder.2 (state space)."
        )
        assert "maps" not in about
    mixed = interp.score(model, ["entropy"], null="none")
    assert "skipped" not in mixed.provenance["bamba", "entropy"]
    assert set(mixed.to_pandas()["kind"]) == {"softmax", "state space"}
    assert "(state space)" in repr(mixed) or "(softmax)" in repr(mixed)


def test_attribution_on_a_hybrid_reads_its_softmax_layers_and_names_the_others(tiny_mixer):
    from interp.attribution import attribute

    model = tiny_mixer("bamba")
    for method in ("attention_gradient", "chefer", "value_zeroing", "globenc"):
        found = attribute(model, IDS[0, :7].tolist(), method)
        assert "decoder.0, decoder.2 (state space)" in found.provenance["skipped"]
    assert "skipped" not in attribute(model, IDS[0, :7].tolist(), "rollout").provenance
    with pytest.raises(UnreadableAttention, match="no softmax attention"):
        attribute(tiny_mixer("mamba2"), IDS[0, :7].tolist(), "chefer")
    with pytest.raises(UnreadableAttention, match="has no rule"):
        attribute(model, IDS[0, :7].tolist(), "attn_lrp")


GROWTH = """
import resource, sys
import torch
from transformers import Mamba2Config, Mamba2ForCausalLM
import interp

config = Mamba2Config(vocab_size=64, num_hidden_layers=1, hidden_size=64, state_size=16,
                      num_heads=2, head_dim=64, n_groups=1, chunk_size=64)
model = interp.load(Mamba2ForCausalLM(config).eval(), name="long")
ids = torch.randint(64, (1, int(sys.argv[1]))).tolist()

def run(ids):
    interp.score(model, ["previous_token", "entropy"], ids, null="none", engine="streamed")

run([ids[0][:64]])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(ids)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
def test_memory_of_a_long_scan_is_linear() -> None:
    """Growth with the number of blocks would be quadratic: small results must not pin memory."""
    found = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, "12288"],
        capture_output=True,
        text=True,
        check=False,
        env=found,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 300  # MiB; one map alone is 576
