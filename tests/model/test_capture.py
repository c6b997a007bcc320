"""Chosen activations: slices of the whole, sums of parts, full precision, gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import zoo
from together import over
from torch import Tensor

import interp
from interp.core.errors import OptionError, UnknownName, UnreadableAttention

HEAD_NAMES = ("q", "k", "v", "scores", "pattern", "z")
# one of each kind: MHA, GQA, latent, legacy with one axis for batch and head or two, einsum
SLICED = (
    "gpt2",
    "llama",
    "deepseek_v3",
    "bloom",
    "gptj",
    "falcon",
    "xlnet",
    "bert",
    "t5",
    "whisper",
)


def names_of(model: interp.Model) -> list[str]:
    return [n for n in HEAD_NAMES if all(s.has_qk for s in model.sites) or n not in ("q", "k")]


@pytest.mark.parametrize("name", SLICED)
def test_chosen_heads_rows_and_positions_are_slices_of_the_whole(loaded, name):
    model, inputs = loaded(name), zoo.FAMILIES[name].inputs()
    names = names_of(model)
    full = model.capture(inputs, names)
    heads, rows, positions = [4, 1], [5, -1, 0], [2, -1]
    part = model.capture(inputs, names, heads=heads, rows=rows, positions=positions)
    assert torch.equal(part.logits, full.logits)
    for site in model.sites:
        where = site.layer, site.stack
        kv = sorted({site.kv_head(h) for h in heads})
        assert part.heads[site.stack, site.layer] == (4, 1)
        for n in names:
            got, want = part[n, *where], full[n, *where]
            if n in ("scores", "pattern"):
                # a batched product of fewer rows may round differently in its last bit
                want = want[:, heads][:, :, rows]
                torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)
                continue
            want = want[:, kv if n in ("k", "v") else heads][:, :, positions]
            assert torch.equal(got, want), (n, site.name)


def test_keys_and_values_of_chosen_heads_are_those_they_read(loaded):
    model, inputs = loaded("llama"), zoo.FAMILIES["llama"].inputs()
    full = model.capture(inputs, ["k", "v"], layers=1)
    for head, kv in ((1, 0), (2, 0), (3, 1), (4, 1)):
        one = model.capture(inputs, ["k", "v"], layers=1, heads=head)
        for n in ("k", "v"):
            assert torch.equal(one[n, 1], full[n, 1][:, [kv]])


def test_chosen_layers_and_stacks(loaded):
    model, inputs = loaded("t5"), zoo.FAMILIES["t5"].inputs()
    cache = model.capture(inputs, ["pattern"], stack="cross", layers=[0])
    assert list(cache) == [("pattern", 0, "cross")]
    with pytest.raises(OptionError, match=r"no attention in layers \[7\]"):
        model.capture(inputs, ["pattern"], layers=[0, 7])
    whole = model.capture(inputs, ["pattern"])
    with pytest.raises(OptionError, match="encoder, decoder, cross; add the stack"):
        whole["pattern", 0]
    assert torch.equal(whole["pattern", 0, "cross"], cache["pattern", 0])


def test_rows_by_slice_integer_and_tensor(loaded):
    model, inputs = loaded("gpt2"), zoo.FAMILIES["gpt2"].inputs()
    full = model.capture(inputs, ["pattern"])["pattern", 1]
    for rows, want in (
        (slice(3, 7), full[:, :, 3:7]),
        (4, full[:, :, [4]]),
        (torch.tensor([2, 9]), full[:, :, [2, 9]]),
        (range(2), full[:, :, :2]),
    ):
        got = model.capture(inputs, ["pattern"], rows=rows)["pattern", 1]
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt_neox", "phi", "gemma3", "bart"])
def test_q_and_k_give_the_scores_and_the_scores_the_pattern(loaded, name, attention):
    """Queries and keys are those after rotary and norms: their product is what is exponentiated."""
    model, inputs = loaded(name, attention), zoo.FAMILIES[name].inputs()
    cache = model.capture(inputs, ["q", "k", "scores", "pattern"])
    scale = 16**-0.5 if name == "gemma3" else 8**-0.5
    for site in model.sites:
        where = site.layer, site.stack
        q, k = cache["q", *where].double(), cache["k", *where].double()
        k = k.repeat_interleave(site.n_heads // site.n_kv_heads, 1)
        scores, pattern = cache["scores", *where], cache["pattern", *where]
        seen = pattern > 0
        products = (q @ k.transpose(-1, -2) * scale)[seen]
        torch.testing.assert_close(scores[seen].double(), products, atol=1e-5, rtol=1e-5)
        assert not scores[~seen].gt(-1e30).any()
        torch.testing.assert_close(scores.softmax(-1), pattern, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["gptj", "gpt_neo", "bloom", "mpt", "codegen", "roformer"])
def test_recorded_scores_give_the_recorded_pattern(loaded, name):
    model, inputs = loaded(name), zoo.FAMILIES[name].inputs("left")
    cache = model.capture(inputs, ["scores", "pattern"])
    for site in model.sites:
        scores, pattern = cache["scores", site.layer], cache["pattern", site.layer]
        torch.testing.assert_close(scores.softmax(-1), pattern, atol=1e-6, rtol=0)


@over("name", [n for n, f in zoo.FAMILIES.items() if "refused" not in f.features and n != "xlnet"])
def test_the_results_of_all_heads_and_the_bias_are_the_attention_output(loaded, name):
    """Against the projection's own output, caught by a hook of the test's own."""
    model, inputs = loaded(name), zoo.FAMILIES[name].inputs()
    model.capture(inputs, ["result"])  # the streams are searched once, in runs of their own
    caught: dict[str, list[Tensor]] = {}
    handles = [
        model.module.get_submodule(path).register_forward_hook(
            lambda m, a, out, path=path: caught.setdefault(path, []).append(out.clone())
        )
        for path in {site.projection for site in model.sites}
    ]
    try:
        cache = model.capture(inputs, ["result"])
    finally:
        for handle in handles:
            handle.remove()
    for site in model.sites:
        result = cache["result", site.layer, site.stack]
        assert result.shape[-2] == site.n_heads
        out = site.streams.get("attn_out")
        if out is not None and (out.module != site.projection or out.scale != 1):
            continue  # rescaled before it is added: see test_head_outputs
        bias = getattr(model.module.get_submodule(site.projection), "bias", None)
        total = result.sum(-2) + (0 if bias is None else bias.detach())
        want = caught[site.projection][site.run]
        torch.testing.assert_close(total, want.reshape(total.shape), atol=2e-5, rtol=1e-4)
    some = model.capture(inputs, ["result"], heads=[1, 0], layers=model.sites[0].layer)
    site = model.sites[0]
    whole = cache["result", site.layer, site.stack]
    assert torch.equal(some["result", site.layer, site.stack], whole[..., [1, 0], :])


def test_a_projection_inside_an_adapter_is_split_by_running_it():
    """LoRA's kind of wrapper: the matrix is what the whole module does."""

    class Adapter(torch.nn.Module):
        def __init__(self, base: torch.nn.Linear):
            super().__init__()
            self.base = base
            self.down = torch.nn.Linear(base.in_features, 2, bias=False)
            self.up = torch.nn.Linear(2, base.out_features, bias=False)

        @property
        def weight(self) -> Tensor:
            return self.base.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.up(self.down(x))

    module: Any = zoo.FAMILIES["phi"].build()
    attention = module.model.layers[1].self_attn
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        attention.dense = Adapter(attention.dense)
    model = interp.load(module)
    assert model.sites[1].projection == "model.layers.1.self_attn.dense"
    inputs = zoo.FAMILIES["phi"].inputs()
    cache = model.capture(inputs, ["result", "z"])
    z = cache["z", 1].transpose(1, 2).flatten(2)
    with torch.no_grad():
        want = attention.dense(z) - attention.dense.base.bias
    torch.testing.assert_close(cache["result", 1].sum(2), want, atol=1e-5, rtol=1e-4)


def test_half_precision_models_have_patterns_in_float32(loaded):
    reference = loaded("llama").capture(zoo.FAMILIES["llama"].inputs(), ["pattern"])
    for dtype in (torch.bfloat16, torch.float16):
        for attention in ("eager", "sdpa"):
            module = copy.deepcopy(zoo.FAMILIES["llama"].model(attention)).to(dtype)
            model = interp.load(module)
            cache = model.capture(zoo.FAMILIES["llama"].inputs(), ["pattern", "scores", "z", "q"])
            assert model.dtype == dtype
            assert cache["q", 0].dtype == cache["z", 0].dtype == dtype
            for layer in range(3):
                pattern = cache["pattern", layer]
                assert pattern.dtype == cache["scores", layer].dtype == torch.float32
                total = pattern.sum(-1)  # a bf16 pattern would miss 1 by 2**-9 here and there
                torch.testing.assert_close(total, torch.ones_like(total), atol=1e-6, rtol=0)
            assert (cache["pattern", 0] - reference["pattern", 0]).abs().max() < 0.05


def test_watched_models_in_half_precision():
    module = copy.deepcopy(zoo.FAMILIES["bloom"].model()).bfloat16()
    cache = interp.load(module).capture(zoo.FAMILIES["bloom"].inputs(), ["pattern", "scores"])
    assert cache["pattern", 0].dtype == cache["scores", 0].dtype == torch.float32


@pytest.mark.parametrize("name", ["llama", "gpt2", "t5", "bloom", "falcon"])
def test_gradients_flow_through_what_is_captured(name):
    """d(sum of w * pattern)/d(embedding) equals autograd through the model's own attentions."""
    module: Any = zoo.FAMILIES[name].build()
    model, inputs = interp.load(module), zoo.FAMILIES[name].inputs()
    table = module.get_input_embeddings().weight
    site = model.sites[-1]
    cache = model.capture(inputs, ["pattern"], grad=True)
    pattern = cache["pattern", site.layer, site.stack]
    weight = torch.randn(pattern.shape, generator=torch.Generator().manual_seed(0))
    (got,) = torch.autograd.grad((pattern * weight).sum(), table)
    out = module(**inputs, output_attentions=True)
    own = out.cross_attentions[-1] if name == "t5" else out.attentions[-1]
    (want,) = torch.autograd.grad((own * weight).sum(), table)
    assert want.abs().max() > 1e-3
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    z = model.capture(inputs, ["z", "result"], grad=True)
    assert torch.autograd.grad(z["z", site.layer, site.stack].sum(), table)[0].any()
    assert not model.capture(inputs, ["z"])["z", site.layer, site.stack].requires_grad


def test_a_cache_is_a_read_only_mapping(loaded):
    model, inputs = loaded("gpt2"), zoo.FAMILIES["gpt2"].inputs()
    cache = model.capture(inputs, ["pattern", "z"], layers=[0, 2])
    assert ("pattern", 0) in cache
    assert ("pattern", 1) not in cache
    assert cache.get(("z", 1)) is None
    assert len(cache) == 4
    assert {key: x.shape for key, x in cache.items()}["z", 0, "decoder"] == (2, 6, 12, 8)
    assert cache.stack("z").shape == (2, 2, 6, 12, 8)
    with pytest.raises(OptionError, match="layer 1 was not captured; these were captured: pattern"):
        cache["pattern", 1]
    with pytest.raises(UnknownName, match="did you mean pattern"):
        cache["patern", 0]
    with pytest.raises(OptionError, match="give a name and a layer"):
        cache["pattern"]
    with pytest.raises(TypeError):
        cache["pattern", 0] = torch.zeros(1)  # type: ignore[index]
    with pytest.raises(AttributeError):
        cache.logits = torch.zeros(1)  # type: ignore[misc]


def test_what_is_captured_is_a_copy(loaded):
    """Writing into a cache changes neither another one nor what the model computes next."""
    for name in ("gpt2", "bloom"):
        model, inputs = loaded(name), zoo.FAMILIES[name].inputs()
        names = ["q", "k", "v", "scores", "pattern", "z", "resid_pre", "attn_out"]
        first = model.capture(inputs, names)
        kept = {key: x.clone() for key, x in first.items()}
        for x in first.values.values():
            x.zero_()
        again = model.capture(inputs, names)
        assert all(torch.equal(again[key], kept[key]) for key in kept)


def test_what_does_not_exist_is_refused_in_one_line(loaded):
    model, inputs = loaded("gpt2"), zoo.FAMILIES["gpt2"].inputs()
    with pytest.raises(UnknownName, match="did you mean pattern"):
        model.capture(inputs, ["patterns"])
    with pytest.raises(OptionError, match=r"heads 0 to 5; requested: \[6\]"):
        model.capture(inputs, ["z"], heads=6)
    for option in ("rows", "positions"):
        with pytest.raises(OptionError, match=rf"{option} \[12\] of 12"):
            model.capture(inputs, ["pattern", "z"], **{option: [0, 12]})
        with pytest.raises(OptionError, match=f"{option} are integers"):
            model.capture(inputs, ["z"], **{option: [0.5]})
        with pytest.raises(OptionError, match=f"{option} are integers"):
            model.capture(inputs, ["z"], **{option: torch.ones(12, dtype=torch.bool)})
    with pytest.raises(UnreadableAttention, match="sum of several products, so no single q"):
        loaded("deberta").capture(inputs, ["q"])
    with pytest.raises(UnreadableAttention, match="no module takes the heads' outputs"):
        loaded("xlnet").capture(inputs, ["result"])
