"""Interventions, each against a computation of its own."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import zoo
from together import over
from torch import Tensor

import interp
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.prompts import Prompts
from interp.model.edits import gate, mean, resample, set_z, zero
from interp.model.pattern_edits import set_pattern, uniform
from training import forms

READ = [f for f in zoo.FAMILIES.values() if "refused" not in f.features]
IDS = torch.tensor([[9, 33, 21, 40, 11, 52], [17, 30, 8, 44, 23, 61]])
RAGGED = Prompts(((9, 33, 21, 40, 11, 52), (17, 30, 8)))


@contextmanager
def input_changed(model: interp.Model, site: Any, change):
    """A hook of the test's own that changes the projection's input at one site."""
    runs = [0]

    def before(module, args, kwargs):
        run, runs[0] = runs[0], runs[0] + 1
        if run % per != site.run:
            return None
        if args:
            x, rest = args[0], args[1:]
            return (edit(x), *rest), kwargs
        name = next(iter(kwargs))
        return args, kwargs | {name: edit(kwargs[name])}

    def edit(x: Tensor) -> Tensor:
        heads = x.reshape(*x.shape[: -1 if x.shape[-1] == width else -2], site.n_heads, site.d_v)
        return change(heads.clone()).reshape(x.shape)

    width = site.n_heads * site.d_v
    per = sum(s.projection == site.projection for s in model.sites)
    module = model.module.get_submodule(site.projection)
    handle = module.register_forward_pre_hook(before, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@over("attention", ["eager", "sdpa"])
@over("family", READ, ids=lambda f: f.name)
def test_zero_equals_zeroing_the_slice_of_the_projections_input(loaded, family, attention):
    if attention not in family.attentions or family.name == "xlnet":
        return  # XLNet projects with an einsum: it has its own test below
    model, inputs = loaded(family.name, attention), family.inputs(family.paddings[-1])
    plain = model.run(inputs)
    for site in {model.sites[0], model.sites[-1]}:
        head = site.n_heads - 2

        def cut(heads: Tensor, head: int = head) -> Tensor:
            heads[..., head, :] = 0
            return heads

        with input_changed(model, site, cut), torch.no_grad():
            want = model.run(inputs)
        with torch.no_grad():
            got = model.run(inputs, edits=[zero((site.layer, head), stack=site.stack)])
        assert torch.equal(got, want), site.name
        changed = (got - plain).abs().max()
        # CLIP's image tower hands on one token, so its last layer may matter little, but it matters
        assert changed > 1e-6, site.name


def test_zero_of_a_model_that_projects_by_einsum():
    """XLNet's output matrix is a parameter: zeroing a head's slice is the same intervention."""
    family = zoo.FAMILIES["xlnet"]
    module: Any = family.build()
    model, inputs = interp.load(module), family.inputs("left")
    got = model.run(inputs, edits=[zero("L1H2")]).detach()
    with torch.no_grad():
        module.transformer.layer[1].rel_attn.o[:, 2] = 0
        want = model.run(inputs)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


def test_an_edit_acts_on_query_heads_not_on_their_group(loaded):
    model = loaded("llama")
    cache = model.capture(IDS, ["z"], edits=[zero("L0H1")])
    plain = model.capture(IDS, ["z"])
    assert not cache["z", 0][:, 1].any()
    others = [0, 2, 3, 4, 5]
    assert torch.equal(cache["z", 0][:, others], plain["z", 0][:, others])


@pytest.mark.parametrize("name", ["llama", "bloom", "bert"])
def test_mean_over_the_batch_is_over_real_positions(loaded, name):
    model = loaded(name)
    z = model.capture(RAGGED, ["z"])["z", 1]
    want = torch.cat([z[0, 3], z[1, 3, :3]]).mean(0)  # 6 and 3 real positions
    edited = model.capture(RAGGED, ["z"], edits=[mean("L1H3", over="batch")])["z", 1]
    assert edited[:, 3].shape == (2, 6, z.shape[-1])
    torch.testing.assert_close(edited[:, 3], want.expand(2, 6, -1), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("padding", ["right", "left"])
def test_mean_by_position_counts_from_each_prompts_first_token(loaded, padding):
    model = loaded("llama")
    prompts = Prompts(RAGGED.ids, padding=padding)
    z = model.capture(prompts, ["z"])["z", 1]
    first, second = z[0, 3], z[1, 3, :3] if padding == "right" else z[1, 3, 3:]
    edited = model.capture(prompts, ["z"], edits=[mean("L1H3", over="position")])["z", 1]
    for place in range(3):
        want = (first[place] + second[place]) / 2
        torch.testing.assert_close(edited[0, 3, place], want, atol=1e-6, rtol=1e-5)
        column = place if padding == "right" else place + 3
        torch.testing.assert_close(edited[1, 3, column], want, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(edited[0, 3, 3:], first[3:], atol=1e-6, rtol=1e-5)  # alone there


def test_mean_over_a_dataset_is_over_its_real_positions(loaded):
    model = loaded("llama")
    other = Prompts(((12, 13, 14, 15), (20, 21), (40, 41, 42)))
    reference = model.mean_z(other, batch_size=2)
    alone = [model.capture([list(p)], ["z"]).z_by_site() for p in other.ids]
    for site in model.sites:
        key = site.stack, site.layer
        want = torch.cat([z[key][0] for z in alone], 1).mean(1)
        torch.testing.assert_close(reference[key], want, atol=1e-6, rtol=1e-5)
    edit = mean(["L1H3", "L0H0"], over="dataset", reference=reference)
    edited = model.capture(RAGGED, ["z"], edits=[edit])
    want = reference["decoder", 1][3].expand(2, 6, -1)
    torch.testing.assert_close(edited["z", 1][:, 3], want, atol=1e-6, rtol=1e-5)


def test_means_of_sound_leave_its_padding_out(loaded):
    """wav2vec2's mask is over samples, not positions: the attention's own mask tells."""
    family, seen = zoo.FAMILIES["wav2vec2"], []
    for attention in ("eager", "sdpa"):
        model, inputs = loaded("wav2vec2", attention), family.inputs("right")
        with model.visited(lambda site, call, real: seen.append(real)):
            model.run(inputs)
        want = zoo.real_positions(inputs, "encoder", torch.empty(2, 6, 12, 12))
        assert all(torch.equal(real, want) for real in seen)


def test_real_positions_come_from_the_mask_however_it_is_given(loaded):
    model, seen = loaded("llama"), []
    ids, real = RAGGED.padded()
    four = (real[:, None, None, :] & torch.ones(6, 6, dtype=torch.bool).tril()).contiguous()
    with model.visited(lambda site, call, real: seen.append(real)), torch.no_grad():
        model.module(ids, real.long())  # by position
        model.module(input_ids=ids, attention_mask=four)
        model.module.model(ids, attention_mask=real.long())  # a part of the model
    assert len(seen) == 9
    assert all(torch.equal(x, real) for x in seen)


def test_towers_do_not_share_their_masks(loaded):
    """SigLIP with as many words as patches (16): the words' padding is not the picture's."""
    model, seen = loaded("siglip"), {}
    inputs = zoo.FAMILIES["siglip"].inputs("right", length=16)
    with model.visited(lambda site, call, real: seen.setdefault(site.stack, real)):
        model.run(inputs)
    assert torch.equal(seen["text"], inputs["attention_mask"].bool())
    assert seen["vision"].all()


def test_resample_puts_another_runs_z_in_place(loaded):
    model = loaded("llama")
    source = model.capture(IDS.flip(0), ["z"]).z_by_site()
    edited = model.capture(IDS, ["z"], edits=[resample("L1H2", source)])["z", 1]
    plain = model.capture(IDS, ["z"])["z", 1]
    assert torch.equal(edited[:, 2], source["decoder", 1][:, 2])
    assert torch.equal(edited[:, 1], plain[:, 1])
    everything = [resample([(layer, h) for layer in range(3) for h in range(6)], source)]
    one = model.capture(IDS[:1], ["z"]).z_by_site()
    broadcast = model.capture(IDS, ["z"], edits=[resample("L1H2", one)])["z", 1]
    assert torch.equal(broadcast[1, 2], one["decoder", 1][0, 2])
    assert not torch.equal(model.run(IDS, edits=everything), model.run(IDS))
    with pytest.raises(
        OptionError, match=r"source has shape \(2, 6, 6, 8\), the run \(2, 6, 4, 8\)"
    ):
        model.run(IDS[:, :4], edits=[resample("L1H2", source)])
    part = model.capture(IDS, ["z"], layers=1).z_by_site()
    with pytest.raises(OptionError, match=r"source of resample has no decoder\.2"):
        model.run(IDS, edits=[resample("L2H2", part)])


@pytest.mark.parametrize(
    "name", ["llama", "mistral_sliding", "bloom", "bert", "gpt_oss", "gpt_neo"]
)
def test_uniform_attention_averages_the_values_it_may_see(loaded, name):
    """Not the same as zeroing: the values still flow."""
    model = loaded(name)
    prompts = RAGGED if name != "gpt_oss" else Prompts(RAGGED.ids[:1])
    before = model.capture(prompts, ["v", "z", "pattern"])
    edited = model.capture(prompts, ["z"], edits=[uniform("L1H3")])["z", 1]
    site = model.sites[1]
    v = before["v", 1][:, site.kv_head(3)]
    window = 4 if name in ("mistral_sliding", "gpt_neo") else 99
    if name == "gpt_oss":  # sliding layers are 0 and 2
        window = 99
    for row, prompt in enumerate(prompts.ids):
        for query in range(len(prompt)):
            last = len(prompt) - 1 if name == "bert" else query
            want = v[row, max(0, query - window + 1) : last + 1].mean(0)
            torch.testing.assert_close(edited[row, 3, query], want, atol=1e-6, rtol=1e-5)
    assert torch.equal(edited[:, 2], before["z", 1][:, 2])


def test_uniform_attention_over_the_encoder(loaded):
    for name in ("t5", "bart"):
        model, inputs = loaded(name), zoo.FAMILIES[name].inputs("right")
        v = model.capture(inputs, ["v"], stack="cross")["v", 1]
        for stack in ("decoder", "cross"):
            z = model.capture(inputs, ["z"], stack=stack, edits=[uniform("L1H3", stack=stack)])
            got = z["z", 1][-1, 3, 3]  # the fourth target of the padded row
            if stack == "cross":
                want = v[-1, 3, :-3].mean(0)
            else:
                values = model.capture(inputs, ["v"], stack="decoder")["v", 1]
                want = values[-1, 3, :4].mean(0)
            torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)


def test_gate_multiplies_z(loaded):
    model = loaded("llama")
    plain = model.capture(IDS, ["z"])["z", 1]
    got = model.capture(IDS, ["z"], edits=[gate(["L1H0", "L1H4"], 0.25)])["z", 1]
    torch.testing.assert_close(got[:, [0, 4]], 0.25 * plain[:, [0, 4]], atol=0, rtol=1e-6)
    assert torch.equal(got[:, 1], plain[:, 1])
    factors = torch.tensor([0.5, -2.0])
    got = model.capture(IDS, ["z"], edits=[gate(["L1H4", "L0H1"], factors)])
    first = model.capture(IDS, ["z"], edits=[gate("L0H1", -2.0)])
    assert torch.equal(got["z", 0], first["z", 0])
    torch.testing.assert_close(got["z", 1][:, 4], 0.5 * first["z", 1][:, 4], atol=0, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "step", "tolerance"),
    # Llama's norms and BLOOM's softmax round to float32 in a float64 model too
    [("gpt2", 1e-5, 1e-6), ("llama", 1e-2, 5e-3), ("bloom", 1e-2, 5e-3)],
)
def test_gate_gradients_equal_finite_differences(loaded, name, step, tolerance):
    """Over all heads at once: head importance of Michel et al. 2019."""
    model = interp.load(copy.deepcopy(loaded(name).module).double())
    heads = model.heads()
    weight = torch.randn(2, 6, model.d_vocab, generator=torch.Generator().manual_seed(1)).double()

    def loss(factors: Tensor) -> Tensor:
        return (model.run(IDS, edits=[gate(heads, factors)]) * weight).sum()

    at = torch.ones(len(heads), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(at), at)
    for i in range(0, len(heads), 5):
        shift = torch.zeros_like(at)
        shift[i] = step
        with torch.no_grad():
            want = (loss(at + shift) - loss(at - shift)) / (2 * step)
        torch.testing.assert_close(gradient[i], want, atol=tolerance, rtol=tolerance)
    assert gradient.abs().min() > 1e-6
    assert gradient.abs().max() > 1


def test_set_and_set_pattern(loaded):
    for name in ("llama", "gptj"):
        model = loaded(name)
        site = model.sites[1]
        value = torch.arange(float(site.d_v))
        got = model.capture(IDS, ["z"], edits=[set_z("L1H3", value)])["z", 1]
        assert torch.equal(got[:, 3], value.expand(2, 6, -1))
        first = torch.zeros(6, 6)
        first[:, 0] = 1
        got = model.capture(IDS, ["z", "v"], edits=[set_pattern("L1H3", first)])
        v = got["v", 1][:, site.kv_head(3)]
        torch.testing.assert_close(got["z", 1][:, 3], v[:, :1].expand(-1, 6, -1))


@pytest.mark.parametrize("name", ["llama", "bloom", "falcon", "xlnet", "t5"])
def test_the_models_own_pattern_put_back_changes_nothing(loaded, name):
    model = loaded(name)
    inputs = {"input_ids": IDS} | ({"decoder_input_ids": IDS[:, :4]} if name == "t5" else {})
    stack = model.stacks[-1]
    heads = [(1, h) for h in range(6)]

    def same(pattern: Tensor) -> Tensor:
        kept = pattern.clone()
        pattern.zero_()  # writing into what is handed over must not reach the model
        return kept

    plain = model.capture(inputs, ["pattern"], stack=stack)
    got = model.capture(
        inputs, ["pattern"], stack=stack, edits=[set_pattern(heads, same, stack=stack)]
    )
    torch.testing.assert_close(got.logits, plain.logits, atol=1e-5, rtol=1e-4)
    assert torch.equal(got["pattern", 1], plain["pattern", 1])
    knocked = set_pattern("L1H0", lambda p: p * 0, stack=stack)
    want = model.run(inputs, edits=[zero("L1H0", stack=stack)])
    assert torch.equal(model.run(inputs, edits=[knocked]), want)


@torch.no_grad()
def test_patterns_of_variants_are_set_where_they_are_the_map() -> None:
    model, ids = forms.load("entmax"), [[5, 9, 12, 5, 9, 12, 7]]
    v = model.capture(ids, ["v"], layers=0)["v", 0][0, 1]
    edited = model.capture(ids, ["z"], layers=0, edits=[set_pattern([(0, 1)], torch.eye(7))])
    torch.testing.assert_close(edited["z", 0][0, 1], v)  # each token reads itself alone
    with pytest.raises(UnreadableAttention, match="absolute share"):
        forms.load("sigmoid").run(ids, edits=[set_pattern([(0, 1)], torch.eye(7))])
