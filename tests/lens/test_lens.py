"""The logit lens and direct logit attribution against the models' own modules and planted heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo

import interp
from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.lens import direct_logit_attribution, logit_lens
from interp.lens.finish import finish
from interp.model.load import load

IDS = [[5, 9, 3, 11, 7, 2, 8]]
# Layer norm and RMS norm, tied and untied, factors, soft cap, norms after attention, biases.
FAMILIES = ("gpt2", "llama", "gpt_neox", "opt", "granite", "olmo2", "gemma2")


def tiny(name: str):
    return load(zoo.FAMILIES[name].model("eager"), name=name)


@pytest.mark.parametrize("name", FAMILIES)
def test_many_directions_are_mapped_to_the_stream_as_each_alone(name: str) -> None:
    model = tiny(name)
    cache = model.capture(IDS, ("resid_post",))
    end = finish(model, cache, "decoder")
    streams, tokens = cache["resid_post", model.n_layers - 1][0], torch.tensor([6, 4, 11])
    one_hot = torch.nn.functional.one_hot(tokens, cache.logits.shape[-1]).double()
    each = torch.stack([end.back(d, x)[0] for d, x in zip(one_hot, streams[:3], strict=True)])
    assert torch.allclose(end.back_all(one_hot, streams[:3]), each, atol=1e-6)
    columns = (end.columns(tokens) * end.scales(streams[:3])).T
    assert torch.allclose(columns, each, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_parts_sum_to_the_models_own_logit(name: str) -> None:
    model = tiny(name)
    with torch.no_grad():
        logits = model.run(IDS)[0].double()
    for position in (-1, 3):
        found = direct_logit_attribution(model, IDS, 6, contrast=4, position=position)
        whole = sum(found.parts.values())
        assert whole == pytest.approx(found.value, abs=1e-4)
        assert abs(found.residual) < 1e-4
        if "soft cap" in found.notes:
            cap = found.notes["soft cap"]
            raw = [cap * float(torch.atanh(logits[position, t] / cap)) for t in (6, 4)]
            assert found.value == pytest.approx(raw[0] - raw[1], abs=1e-4)
        else:
            want = float(logits[position, 6] - logits[position, 4])
            assert found.value == pytest.approx(want, abs=1e-5)
        assert len(found.table) == model.n_layers * model.n_heads
        assert "the parts sum to it up to rounding" in str(found)


def test_a_heads_part_is_what_it_wrote_seen_through_the_frozen_norm() -> None:
    """By hand on GPT-2: z W_O of the head, through the last norm with this input's deviation."""
    model = tiny("gpt2")
    module, found = model.module, direct_logit_attribution(model, IDS, 6, position=4)
    cache = model.capture(IDS, ["z", "resid_post"])
    x = cache["resid_post", model.n_layers - 1][0, 4].double()
    deviation = ((x - x.mean()).square().mean() + module.transformer.ln_f.eps).sqrt()
    for p in module.parameters():
        p.requires_grad_(False)
    for layer, head in ((0, 1), (1, 0)):
        size = model.d_head
        weight = module.transformer.h[layer].attn.c_proj.weight.double()
        wrote = cache["z", layer][0, head, 4].double() @ weight[head * size : (head + 1) * size]
        normed = (wrote - wrote.mean()) / deviation * module.transformer.ln_f.weight.double()
        want = float(normed @ module.lm_head.weight[6].double())
        frame = found.table.to_pandas()
        got = frame[(frame["layer"] == layer) & (frame["head"] == head)]["score"].item()
        assert got == pytest.approx(want, abs=1e-6)
        assert abs(want) > 1e-6


def test_induction_heads_write_the_repeated_token() -> None:
    model = interp.load("bundled:induction")
    block = np.random.default_rng(3).permutation(np.arange(10, 200))[:20].tolist()
    ids = [[0, *block, *block[:8]]]
    found = direct_logit_attribution(model, ids, block[8], contrast=block[15])
    best = [name for name in found.parts if name.startswith("L")][:3]
    ranked = interp.score(model, "induction", null="none").top(3, "induction").to_pandas()
    induction = {f"L{r['layer']}H{r['head']}" for r in ranked.to_dict("records")}
    assert set(best) & induction
    assert found.value > 2


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "t5"])
def test_the_deepest_logits_are_the_models_own_and_the_first_those_of_the_embedding(name) -> None:
    model = tiny(name)
    with torch.no_grad():
        logits = model.run(IDS)[0].double().numpy()
    found = logit_lens(model, IDS, k=3, target=6)
    assert found.depths[0] == "embedding"
    np.testing.assert_allclose(found.target_logits[-1], logits[:, 6], atol=1e-4)
    np.testing.assert_array_equal(found.top_ids[-1, :, 0], logits.argmax(-1))
    assert found.residual < 1e-4
    assert (found.target_ranks[-1] == (logits > logits[:, 6:7]).sum(-1)).all()
    assert np.abs(found.target_logits[0] - found.target_logit[-1]).max() > 1e-3
    assert len(found.to_pandas()) == len(found.depths) * 7


def test_by_hand_on_llama_at_the_first_layer() -> None:
    model = tiny("llama")
    found = logit_lens(model, IDS, target=6)
    stream = model.capture(IDS, ["resid_post"])["resid_post", 0]
    with torch.no_grad():
        want = model.module.lm_head(model.module.model.norm(stream))[0, :, 6]
    np.testing.assert_allclose(found.target_logits[1], want.numpy(), atol=1e-6)


def test_what_is_not_linear_or_not_there_is_refused_in_one_line() -> None:
    with pytest.raises(UnreadableAttention, match="nonlinear layer precedes the unembedding"):
        logit_lens(tiny("bert"), IDS)
    with pytest.raises(UnreadableAttention, match="post-norm"):
        direct_logit_attribution(tiny("bart"), IDS, 6, contrast=4)
    model = tiny("gpt2")
    with pytest.raises(OptionError, match="contrast is the target itself"):
        direct_logit_attribution(model, IDS, 6, contrast=6)
    with pytest.raises(OptionError, match="position 7 is out of range for 7 tokens"):
        direct_logit_attribution(model, IDS, 6, position=7)
    with pytest.raises(OptionError, match="one prompt at a time"):
        logit_lens(model, [[1, 2, 3], [4, 5, 6]])
    with pytest.raises(PromptError, match="token id 100000"):
        logit_lens(model, IDS, target=100_000)
