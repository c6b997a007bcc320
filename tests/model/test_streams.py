"""The stream is found by value; here it is compared with hooks on modules known by name."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch
import zoo
from together import over
from torch import Tensor, nn

import interp
from interp.core.errors import UnreadableAttention
from interp.model.activation_names import STREAM_NAMES
from interp.model.calls.sites import circuit_sites

READ = [f for f in zoo.FAMILIES.values() if "refused" not in f.features]
# attention and MLP side by side: there is nothing between them
# each sum goes through a norm before it is the stream again (the zoo's norms have weight 1, bias 0)
POST_NORM = {
    *("bert", "roberta", "xlm_roberta", "electra", "distilbert", "albert", "mpnet", "roformer"),
    *("deberta", "deberta_v2", "wav2vec2", "bart", "marian", "openai-gpt"),
}
PARALLEL = {"cohere", "gpt_neox", "phi", "falcon", "falcon_gqa", "gptj", "codegen"}


def first(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else x[0]


def hooked(module: nn.Module, inputs: dict[str, Tensor], wanted: dict[str, tuple[str, str]]):
    """What the modules at paths get ("in") or give ("out"), copied, by forward hooks."""
    found: dict[str, Tensor] = {}

    def keep(name: str, x: Any) -> None:
        found[name] = first(x).clone()

    with ExitStack() as stack, torch.no_grad():
        for name, (path, side) in wanted.items():
            inner = module.get_submodule(path)
            if side == "in":
                handle = inner.register_forward_pre_hook(
                    lambda m, a, k, name=name: keep(name, a or list(k.values())), with_kwargs=True
                )
            else:
                handle = inner.register_forward_hook(lambda m, a, out, name=name: keep(name, out))
            stack.callback(handle.remove)
        module(**inputs)
    return found


def block(i: int) -> dict[str, dict[str, tuple[str, str]]]:
    """Where each family's own code has these tensors, read from its source."""
    llama, gpt2, neox = f"model.layers.{i}", f"transformer.h.{i}", f"gpt_neox.layers.{i}"
    bert, bart = f"bert.encoder.layer.{i}", f"model.decoder.layers.{i}"
    return {
        "llama": {
            "resid_pre": (f"{llama}.input_layernorm", "in"),
            "attn_out": (f"{llama}.self_attn", "out"),
            "resid_mid": (f"{llama}.post_attention_layernorm", "in"),
            "mlp_out": (f"{llama}.mlp", "out"),
            "resid_post": (llama, "out"),
        },
        "gpt2": {
            "resid_pre": (f"{gpt2}.ln_1", "in"),
            "attn_out": (f"{gpt2}.attn", "out"),
            "resid_mid": (f"{gpt2}.ln_2", "in"),
            "mlp_out": (f"{gpt2}.mlp", "out"),
            "resid_post": (gpt2, "out"),
        },
        # the norms come after the sums: the stream in the middle is what leaves the first norm
        "bert": {
            "resid_pre": (bert, "in"),
            "attn_out": (f"{bert}.attention.output.dense", "out"),
            "resid_mid": (f"{bert}.attention.output.LayerNorm", "out"),
            "mlp_out": (f"{bert}.output.dense", "out"),
            "resid_post": (bert, "out"),
        },
        # a norm before and one after each branch: what is added is what leaves the second
        "gemma2": {
            "resid_pre": (f"{llama}.input_layernorm", "in"),
            "attn_out": (f"{llama}.post_attention_layernorm", "out"),
            "resid_mid": (f"{llama}.pre_feedforward_layernorm", "in"),
            "mlp_out": (f"{llama}.post_feedforward_layernorm", "out"),
            "resid_post": (llama, "out"),
        },
        "gpt_neox": {
            "resid_pre": (f"{neox}.input_layernorm", "in"),
            "attn_out": (f"{neox}.attention", "out"),
            "mlp_out": (f"{neox}.mlp", "out"),
            "resid_post": (neox, "out"),
        },
        "opt": {
            "resid_pre": (f"model.decoder.layers.{i}", "in"),
            "attn_out": (f"{bart}.self_attn", "out"),
            "resid_mid": (f"{bart}.final_layer_norm", "in"),
            "mlp_out": (f"{bart}.fc2", "out"),
            "resid_post": (bart, "out"),
        },
    }


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("name", list(block(0)))
def test_streams_are_where_the_familys_own_code_has_them(loaded, name, layer):
    model, inputs = loaded(name), zoo.FAMILIES[name].inputs("right")
    wanted = block(layer)[name]
    cache = model.capture(inputs, list(wanted), layers=layer)
    known = hooked(model.module, inputs, wanted)
    for n in wanted:
        got = cache[n, layer]
        want = known[n].reshape(got.shape)
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5, msg=lambda m, n=n: f"{n}: {m}")


def t5_block(i: int, stack: str) -> dict[str, tuple[str, str]]:
    if stack == "encoder":
        path, mlp = f"encoder.block.{i}", 1
        attention, mid = f"{path}.layer.0.SelfAttention", f"{path}.layer.0"
    else:
        path, mlp = f"decoder.block.{i}", 2
        part, kind = (0, "SelfAttention") if stack == "decoder" else (1, "EncDecAttention")
        attention, mid = f"{path}.layer.{part}.{kind}", f"{path}.layer.{part}"
    return {
        "resid_pre": (path, "in"),
        "attn_out": (attention, "out"),
        "resid_mid": (mid, "out"),
        "mlp_out": (f"{path}.layer.{mlp}.DenseReluDense", "out"),
        "resid_post": (path, "out"),
    }


@pytest.mark.parametrize("stack", ["encoder", "decoder", "cross"])
def test_streams_around_cross_attention(loaded, stack):
    """T5: own and cross attention of one block; what follows each is its resid_mid."""
    model, inputs = loaded("t5"), zoo.FAMILIES["t5"].inputs()
    for layer in range(model.n_layers):
        wanted = t5_block(layer, stack)
        cache = model.capture(inputs, list(wanted), layers=layer, stack=stack)
        known = hooked(model.module, inputs, wanted)
        for n in wanted:
            got = cache[n, layer, stack]
            torch.testing.assert_close(got, known[n], atol=1e-5, rtol=1e-5)


@over("family", READ, ids=lambda f: f.name)
def test_streams_add_up_and_follow_each_other(loaded, family):
    """Whatever a family lacks is refused with the reason; what it has obeys the equations."""
    model, inputs = loaded(family.name), family.inputs()
    layers = circuit_sites(model.sites)  # SigLIP's pooling follows the last layer
    missing = {n for s in layers for n in STREAM_NAMES if n not in s.streams}
    if family.name == "xlnet":
        assert missing == {"resid_mid", "attn_out", "mlp_out"}
    else:
        assert missing == ({"resid_mid"} if family.name in PARALLEL else set())
    for n in missing:
        why = "run side by side" if family.name in PARALLEL else "no tensor of this block"
        with pytest.raises(UnreadableAttention, match=f"has no {n}: .*{why}"):
            model.capture(inputs, [n])
    names = [n for n in STREAM_NAMES if n not in missing]
    cache = model.capture(inputs, names)
    for site in layers:
        at = {n: cache[n, site.layer, site.stack] for n in names}
        shape = at["resid_pre"].shape
        assert len(shape) == 3 or family.name == "swin"
        assert {n: x.shape for n, x in at.items()} == dict.fromkeys(at, shape)
        if family.name in PARALLEL:
            total = at["resid_pre"] + at["attn_out"] + at["mlp_out"]
            assert close(total, at["resid_post"]), site.name
        elif family.name != "xlnet":
            base = at["resid_pre"]
            if site.stack == "cross":  # comes after the decoder's own attention, in the same block
                base = cache["resid_mid", site.layer, "decoder"]
            mid, post = base + at["attn_out"], at["resid_mid"] + at["mlp_out"]
            if family.name in POST_NORM:
                width, eps = mid.shape[-1:], 1e-5 if "bart" in family.name else 1e-12
                mid, post = (nn.functional.layer_norm(x, width, eps=eps) for x in (mid, post))
            assert close(mid, at["resid_mid"]), site.name
            if not ("cross" in model.stacks and site.stack == "decoder"):
                assert close(post, at["resid_post"]), site.name
    for before, after in zip(model.sites, model.sites[1:], strict=False):
        follows = before.stack == after.stack and after.layer == before.layer + 1
        if follows and "cross" not in model.stacks and family.name not in ("swin",):
            post = cache["resid_post", before.layer, before.stack]
            assert close(post, cache["resid_pre", after.layer, after.stack]), after.name


def close(a: Any, b: Any) -> bool:
    return torch.allclose(torch.as_tensor(a), torch.as_tensor(b), atol=2e-5, rtol=1e-4)


HIDDEN: tuple[str, ...] = (
    "llama",
    "gpt2",
    "gemma3",
    "bert",
    "gpt_neox",
    "bloom",
    "falcon",
    "mixtral",
)


@pytest.mark.parametrize("name", HIDDEN)
def test_resid_pre_is_what_transformers_calls_hidden_states(loaded, name):
    model, inputs = loaded(name), zoo.FAMILIES[name].inputs()
    with torch.no_grad():
        states = model.module(**inputs, output_hidden_states=True).hidden_states
    cache = model.capture(inputs, ["resid_pre", "resid_post"])
    for site in model.sites:
        assert torch.equal(cache["resid_pre", site.layer], states[site.layer])
        if site.layer + 1 < model.n_layers:  # the last of hidden_states is after the final norm
            assert torch.equal(cache["resid_post", site.layer], states[site.layer + 1])


def test_scaled_branches_are_captured_as_added(loaded):
    """Granite adds 0.7 of each branch: attn_out is what is added, not what the projection gives."""
    model, inputs = loaded("granite"), zoo.FAMILIES["granite"].inputs()
    cache = model.capture(inputs, ["attn_out", "resid_pre", "resid_mid"], layers=1)
    raw = hooked(model.module, inputs, {"out": ("model.layers.1.self_attn", "out")})["out"]
    torch.testing.assert_close(cache["attn_out", 1], 0.7 * raw, atol=1e-6, rtol=1e-5)
    added = cache["resid_mid", 1] - cache["resid_pre", 1]
    torch.testing.assert_close(added, cache["attn_out", 1], atol=1e-5, rtol=1e-4)


def test_chosen_positions_of_the_stream(loaded):
    for name in ("llama", "opt", "bart"):
        model, inputs = loaded(name), zoo.FAMILIES[name].inputs()
        stack = model.stacks[0]
        names = ["resid_pre", "resid_mid", "mlp_out", "result"]
        full = model.capture(inputs, names, layers=1, stack=stack)
        part = model.capture(inputs, names, layers=1, stack=stack, positions=[3, 0])
        for n in names:
            assert torch.equal(part[n, 1], full[n, 1][:, [3, 0]])


def test_streams_are_those_of_the_edited_run(loaded):
    model, inputs = loaded("llama"), zoo.FAMILIES["llama"].inputs()
    names = ["resid_pre", "resid_mid", "result", "attn_out"]
    plain = model.capture(inputs, names)
    edited = model.capture(inputs, names, edits=[interp.zero("L1H2")])
    assert torch.equal(plain["resid_pre", 1], edited["resid_pre", 1])
    assert not edited["result", 1][:, :, 2].any()
    change = plain["resid_mid", 1] - edited["resid_mid", 1]
    torch.testing.assert_close(change, plain["result", 1][:, :, 2], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("silent", ["attn_out", "mlp_out", "both"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox", "gemma2", "bert", "bart", "t5"])
def test_a_layer_that_writes_nothing_is_not_one_that_has_nothing(loaded, name, silent):
    """Projections that start at zero, or a compiled program's: the places are what they were."""
    whole, module = loaded(name), zoo.FAMILIES[name].build(zoo.FAMILIES[name].attentions[-1])
    written = {
        where.module
        for site in whole.sites
        for n, where in site.streams.items()
        if n == silent or (silent == "both" and n in ("attn_out", "mlp_out"))
    }
    with torch.no_grad():
        for path in written:
            for parameter in module.get_submodule(path).parameters():
                parameter.zero_()
    model = interp.load(module)
    assert written
    for site, known in zip(model.sites, whole.sites, strict=True):
        for n, where in known.streams.items():
            got = site.streams[n]
            assert (got.module, got.side, got.run) == (where.module, where.side, where.run), n
            assert got.scale == pytest.approx(where.scale, rel=1e-5)
        assert set(site.streams) == set(known.streams)


def test_noise_of_looking_is_gone_afterwards():
    module: Any = zoo.FAMILIES["bart"].build()
    inputs = zoo.FAMILIES["bart"].inputs()
    with torch.no_grad():
        before = module(**inputs).logits
        interp.load(module)
        assert torch.equal(module(**inputs).logits, before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
