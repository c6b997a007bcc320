"""The matrices found by value make the very q, k, v that each family's attention computes."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import pytest
import torch
import zoo
from heads.weights.families import GATED, NO_VOCABULARY, NORMED, READ, UNREAD, along, single_tokens
from heads.weights.perturbed import perturb
from together import over
from torch import Tensor

import interp
from interp.core.errors import UnreadableAttention
from interp.model.calls.sites import circuit_sites
from interp.model.locate.layout import stream_read
from interp.model.locate.weights import HeadWeights, embeddings, head_weights, why_unreadable


@contextmanager
def reading(model: interp.Model, names: set[str]):
    """What each named module is given on every run, by an ordinary hook."""
    given: dict[str, list[Tensor]] = {name: [] for name in names}
    with ExitStack() as stack:
        for name in names:

            def keep(module, args, kwargs, name=name):
                x = args[0] if args else kwargs["hidden_states"]
                given[name].append(x.detach().clone())

            module = model.module.get_submodule(name)
            handle = module.register_forward_pre_hook(keep, with_kwargs=True)
            stack.callback(handle.remove)
        yield given


def by_token(x: Tensor) -> Tensor:
    """`[batch, head, pos, d] -> [token, head, d]`."""
    return x.transpose(1, 2).flatten(0, 1)


def made(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`[token, d_model] -> [token, head, d]`."""
    return torch.einsum("td,hde->the", x, weight) + bias


def runs(model: interp.Model, part: str):
    """Each readable attention: its weights, what the run made of them, and what they read."""
    every = {s: head_weights(model, s) for s in circuit_sites(model.sites)}
    found = {s: w for s, w in every.items() if not isinstance(getattr(w.layout, part), str)}
    if not found:
        return
    names = {getattr(w.layout, part).module for w in found.values()}
    names |= {b for w in found.values() if (b := getattr(w.layout, part).before)}
    inputs = single_tokens(model.name)
    with torch.no_grad(), reading(model, names) as given:
        cache = model.capture(inputs, (part,))
    for site, w in found.items():
        layout = getattr(w.layout, part)
        target = by_token(cache[part, site.layer, site.stack])
        x = given[layout.module][layout.run].reshape(len(target), -1)
        stream = None if layout.before is None else given[layout.before]
        yield site, w, target, x, stream


def letters(w: HeadWeights, part: str) -> tuple[Tensor, Tensor]:
    return getattr(w, f"W_{part.upper()}"), getattr(w, f"b_{part.upper()}")


@pytest.mark.slow
@over("part", "qkv")
@over("name", READ)
def test_matrices_make_the_tensors_of_the_call(name, part, perturbed):
    model = perturbed(name)
    seen = 0
    for site, w, target, x, _ in runs(model, part):
        weight, bias = letters(w, part)
        got = made(x, weight, bias)
        assert weight.shape == (target.shape[1], x.shape[1], target.shape[2])
        if w.qk_normed and part != "v":  # up to the factor by which q's own norm divides
            assert (along(got, target) > 0).all(), site
        else:
            torch.testing.assert_close(got, target, rtol=0, atol=1e-5 * float(target.abs().max()))
        seen += 1
    refused = UNREAD.get(name, {})
    assert seen == (0 if part in refused else len(circuit_sites(model.sites)))


@over("name", READ)
def test_what_is_refused_is_refused_with_its_reason(name, perturbed):
    model = perturbed(name)
    refused = UNREAD.get(name, {})
    for site in circuit_sites(model.sites):
        w = head_weights(model, site)
        for part in "qkvo":
            letter = f"W_{part.upper()}"
            if part in refused:
                with pytest.raises(UnreadableAttention) as caught:
                    getattr(w, letter)
                assert refused[part] in str(caught.value)
                assert site.name in str(caught.value)
                assert "\n" not in str(caught.value)
            else:
                assert getattr(w, letter).isfinite().all()
    reason = why_unreadable(model, ("vocabulary",))
    if name in NO_VOCABULARY:
        assert reason is not None
        assert NO_VOCABULARY[name] in reason
    else:
        assert reason is None
    ov = why_unreadable(model, ("ov",))
    assert (ov is None) == (name not in GATED and not {"v", "o"} & set(refused)), ov
    assert GATED.get(name, "") in (ov or "")


def test_the_tables_of_refusals_name_families_of_the_zoo():
    assert set(UNREAD) | set(NO_VOCABULARY) | set(GATED) <= set(READ)


@over("part", "qkv")
@over("name", READ)
def test_folded_matrices_read_the_stream_before_the_norm(name, part, perturbed):
    """Of the stream, up to one positive factor per token: that is all a norm leaves open."""
    model = perturbed(name)
    for site, w, target, x, stream in runs(model, part):
        weight, bias = letters(w.folded, part)
        if stream is None:  # post-norm models read the stream itself
            torch.testing.assert_close(weight, letters(w, part)[0])
            continue
        layout = getattr(w.layout, part)
        given = stream[0].reshape(-1, layout.width)
        if len(given) != len(target) or not torch.equal(_normed(model, layout, stream[0]), x):
            assert "windows" in zoo.FAMILIES[name].features  # tokens stand in another order
            continue
        got = torch.einsum("td,hde->the", given, weight)
        if w.qk_normed and part != "v":
            if bias.abs().max() < 1e-6:
                assert (along(got, target) > 0).all(), site
            continue
        factor = along(got.flatten(1), (target - bias).flatten(1))
        assert (factor > 0).all(), site


def _normed(model: interp.Model, layout, stream: Tensor) -> Tensor:
    with torch.no_grad():
        return model.module.get_submodule(layout.before)(stream).reshape(-1, layout.width)


@over("name", READ)
def test_what_heads_read_by_is_named_stream(name, perturbed):
    """The stream found by value is the block's own input, as capture knows it independently."""
    model = perturbed(name)
    for site, _, _, x, stream in runs(model, "v"):
        if site.stack == "cross" or "windows" in zoo.FAMILIES[name].features:
            continue
        read = x if stream is None else stream[0]
        own = model.capture(single_tokens(name), ("resid_pre",))[
            "resid_pre", site.layer, site.stack
        ]
        torch.testing.assert_close(read.reshape(own.shape), own)
        assert stream_read(site, "v") == site.stack


@pytest.mark.parametrize("name", NORMED)
def test_a_norm_of_queries_and_keys_is_flagged(name, perturbed):
    model = perturbed(name)
    flags = [head_weights(model, s).qk_normed for s in circuit_sites(model.sites)]
    # the third layer of Llama 4 has no rotary embedding, and then no norm either
    assert flags == ([True, True, False] if name == "llama4_text" else [True] * len(flags))


def test_no_other_family_is_flagged(perturbed):
    for name in set(READ) - set(NORMED):
        assert not any(head_weights(perturbed(name), s).qk_normed for s in perturbed(name).sites)


@over("name", [n for n in READ if n not in UNREAD])
def test_the_scale_gives_the_scores_of_the_call(name, perturbed):
    """Differences of scores are differences of scaled products; biases of the head's own cancel."""
    model = perturbed(name)
    softcap = "softcap" in zoo.FAMILIES[name].features
    with torch.no_grad():
        cache = model.capture(single_tokens(name), ("q", "k", "scores"))
    for site in circuit_sites(model.sites):
        q, k, scores = (cache[n, site.layer, site.stack] for n in ("q", "k", "scores"))
        own = [site.kv_head(h) for h in range(site.n_heads)]
        product = (q @ k[:, own].mT)[..., 0, 0]
        product = product * head_weights(model, site).scale
        if softcap:
            product = 1.5 * torch.tanh(product / 1.5)
        bias = scores[..., 0, 0] - product
        close = 1e-5 * float(scores.abs().max())
        torch.testing.assert_close(bias, bias[:1].expand_as(bias), rtol=0, atol=close)


@over("name", [n for n in READ if "o" not in UNREAD.get(n, {})])
def test_folded_output_writes_what_reaches_the_stream(name, perturbed):
    """Each token's attention output is the heads' sum, up to a norm's factor and the mean."""
    model = perturbed(name)
    inputs = single_tokens(name)
    names = {s.projection for s in model.sites if s.projection}
    model.capture(inputs, ("attn_out",))  # the first capture locates streams in runs of its own
    with torch.no_grad(), reading(model, names) as given:
        cache = model.capture(inputs, ("attn_out",))
    for site in circuit_sites(model.sites):
        w = head_weights(model, site)
        assert site.projection is not None
        out = cache["attn_out", site.layer, site.stack].flatten(0, 1)
        z = given[site.projection][site.run].reshape(-1, site.n_heads, site.d_v)
        after = None if isinstance(w.layout.o, str) else w.layout.o.after
        folded = w.folded.W_O
        got = torch.einsum("thd,hdm->tm", z, folded)
        if after is not None and "norm" in after:
            if w.b_O.abs().max() == 0:
                assert (along(got, out) > 0).all()
            continue
        bias = out - torch.einsum("thd,hdm->tm", z, folded)
        if w.stream_centred:
            bias = bias - bias.mean(-1, keepdim=True)
            assert folded.mean(-1).abs().max() < 1e-6 * float(folded.abs().max())
        if len(z) == len(out) and "windows" not in zoo.FAMILIES[name].features:
            close = 1e-5 * float(out.abs().max())
            torch.testing.assert_close(bias, bias[:1].expand_as(bias), rtol=0, atol=close)


def test_streams_of_layer_norms_are_centred_and_those_of_rms_norms_are_not(perturbed):
    for name, centred in {
        "gpt2": True,
        "bert": True,
        "openai-gpt": True,
        "cohere": True,
        "llama": False,
        "gemma": False,
        "t5": False,
    }.items():
        model = perturbed(name)
        assert {head_weights(model, s).stream_centred for s in model.sites} == {centred}, name


def test_weights_are_read_anew_after_they_change():
    """Also where a head had no matrix at first: columns that are zero are found nowhere."""
    model = interp.load(zoo.FAMILIES["gpt2"].build(), name="gpt2")
    site, weight = model.sites[1], model.module.transformer.h[1].attn.c_attn.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight[:, -8:] = 0
    assert head_weights(model, site).W_V[5].abs().max() == 0
    with torch.no_grad():
        weight.copy_(2 * kept)
    expected = 2 * kept[:, -48:].reshape(48, 6, 8).transpose(0, 1)
    torch.testing.assert_close(head_weights(model, site).W_V, expected)


def test_reading_changes_neither_the_model_nor_the_random_state():
    model = interp.load(zoo.FAMILIES["gemma3"].build(), name="gemma3")
    before = {k: v.clone() for k, v in model.module.state_dict().items()}
    state = torch.get_rng_state()
    for site in model.sites:
        _ = head_weights(model, site).OV.norm(), head_weights(model, site).QK.norm()
    _ = embeddings(model).W_U
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(v, before[k]) for k, v in model.module.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.module.modules())


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3"])
def test_half_precision_is_read_as_well(name):
    family = zoo.FAMILIES[name]
    whole = interp.load(perturb(family.build()).to(torch.bfloat16).float(), name=name)
    half = interp.load(perturb(family.build()).to(torch.bfloat16), name=name)
    for a, b in zip(whole.sites, half.sites, strict=True):
        for part in ("W_Q", "W_K", "W_V", "W_O"):
            x, y = (getattr(head_weights(m, s).folded, part) for m, s in ((whole, a), (half, b)))
            assert y.dtype == torch.float32
            torch.testing.assert_close(x, y, rtol=0, atol=1e-5 * float(x.abs().max()))


def test_what_half_precision_hides_is_refused_with_the_remedy():
    model = interp.load(zoo.FAMILIES["bart"].build().to(torch.bfloat16), name="bart")
    reason = why_unreadable(model, ("qk",))
    assert reason is None or "load the model in float32" in reason
    assert why_unreadable(interp.load(model.module.float(), name="bart"), ("qk",)) is None
