"""Methods from gradients: against plain Hugging Face, on planted models, and what they promise."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import zoo
from attribution import toy
from beside import real
from torch import nn

import interp
from interp import planted
from interp.attribution import Example
from interp.attribution.target import Target, token_logit
from interp.core.errors import OptionError
from interp.core.registry import ATTRIBUTION_METHODS
from interp.report.printed.attribution import attribution_text
from interp.report.tokens import attribution_page

method = ATTRIBUTION_METHODS.load

BY_GRADIENT = ["decompx", "cp_lrp", "attn_lrp", "gim", "gradient_x_input"]


def last_logit(index: int = 3) -> Target:
    return Target("logit 3", lambda out, real: out[:, -1, index], -1, "logit")


def of(name: str) -> Example:
    family = zoo.FAMILIES[name]
    return Example(interp.load(family.build("eager")), family.inputs(batch=1), last_logit())


def patterns(module: nn.Module, inputs: dict, index: int = 3) -> tuple[list, list]:
    """Attentions as the model returns them, in call order, and the logit's derivatives by them."""
    out = module(**inputs, output_attentions=True, use_cache=False)
    if getattr(out, "encoder_attentions", None):
        own, cross = out.decoder_attentions, out.cross_attentions
        found = [("encoder", a) for a in out.encoder_attentions]
        for pair in zip(own, cross, strict=True):
            found += zip(("decoder", "cross"), pair, strict=True)
    else:
        found = [("own", a) for a in out.attentions]
    grads = torch.autograd.grad(out.logits[0, -1, index], [a for _, a in found])
    return [(s, a[0].detach().double()) for s, a in found], [g[0].double() for g in grads]


# --- attention and its gradient -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "llama", "gpt2"])
def test_chefer_and_attention_gradient_of_one_stack(name: str) -> None:
    example = of(name)
    found, grads = patterns(example.model.module, example.inputs)
    n = len(example)
    r, total = torch.eye(n, dtype=torch.double), torch.zeros(n, dtype=torch.double)
    for (_, a), g in zip(found, grads, strict=True):
        r = r + (a * g).clamp_min(0).mean(0) @ r
        total += (a * g).abs().sum((0, 1))
    assert np.allclose(method("chefer").of(example).scores, r[-1], rtol=1e-4, atol=1e-6)
    ours = method("attention_gradient").of(example).scores
    assert np.allclose(ours, total, rtol=1e-4, atol=1e-6)
    assert float(r[-1, :-1].sum()) > 0.01  # not the identity it starts from


def test_chefer_of_an_encoder_decoder() -> None:
    example = of("bart")
    found, grads = patterns(example.model.module, example.inputs)
    cams = [(s, (a * g).clamp_min(0).mean(0)) for (s, a), g in zip(found, grads, strict=True)]
    n, m = len(example), len(example.output_tokens)
    ee, dd, de = np.eye(n), np.eye(m), np.zeros((m, n))

    def hat(r: np.ndarray) -> np.ndarray:
        rest = r - np.eye(len(r))
        sums = rest.sum(1, keepdims=True)
        return np.divide(rest, sums, out=np.zeros_like(rest), where=sums > 0) + np.eye(len(r))

    for stack, cam in cams:
        a = cam.numpy()
        if stack == "encoder":
            ee = ee + a @ ee
        elif stack == "decoder":
            dd, de = dd + a @ dd, de + a @ de
        else:
            de = de + hat(dd).T @ a @ hat(ee)
    found_by_us = method("chefer").of(example)
    assert np.allclose(found_by_us.matrix, de, rtol=1e-3, atol=1e-6)
    assert np.allclose(found_by_us.scores, de[-1], rtol=1e-3, atol=1e-6)
    assert de[-1].max() > 1e-3


# --- embeddings -----------------------------------------------------------------------------------


def test_plain_gradients_are_those_of_inputs_embeds() -> None:
    example = of("gpt2")
    module = example.model.module
    x = module.transformer.wte(example.inputs["input_ids"]).detach().requires_grad_()
    (g,) = torch.autograd.grad(module(inputs_embeds=x).logits[0, -1, 3], x)
    want = (g * x).sum(-1)[0].detach().numpy()
    assert np.allclose(method("gradient_x_input").of(example).scores, want, rtol=1e-4, atol=1e-6)
    length = g.norm(dim=-1)[0].numpy()
    assert np.allclose(method("gradient_norm").of(example).scores, length, rtol=1e-4)
    own = x.detach().norm(dim=-1)[0].numpy()
    assert np.allclose(method("input_norm").of(example).scores, own, rtol=1e-6)


def test_integrated_gradients_are_exact_on_a_linear_model() -> None:
    example = toy.example(nn.Linear(toy.WIDTH, toy.WIDTH))
    found = method("integrated_gradients").of(example, baseline="zero", steps=1)
    assert abs(found.residual) < 1e-5  # type: ignore[arg-type]
    ids = example.inputs["input_ids"][0]
    module = example.model.module
    w = module.out.weight[2] @ module.block.weight
    want = (module.embed(ids) @ w).detach().numpy()
    assert np.allclose(found.scores, want, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        bias = len(ids) * float(module.out.weight[2] @ module.block.bias)
    assert found.notes["baseline_value"] == pytest.approx(bias, rel=1e-4)


def test_integrated_gradients_complete_with_more_steps() -> None:
    example = of("bert")
    coarse, fine = (
        method("integrated_gradients").of(example, baseline="mean", steps=s, batch_size=7)
        for s in (4, 64)
    )
    assert fine.total == coarse.total
    scale = abs(fine.scores).sum()
    assert abs(fine.residual) < 5e-3 * scale  # type: ignore[arg-type]
    assert abs(fine.residual) < abs(coarse.residual)  # type: ignore[operator,arg-type]


def test_integrated_gradients_are_taken_at_the_midpoints() -> None:
    example = of("bert")
    module = example.model.module
    x = module.bert.embeddings.word_embeddings(example.inputs["input_ids"]).detach()
    want = torch.zeros(len(example))
    for at in (0.25, 0.75):
        point = (at * x).requires_grad_()
        (g,) = torch.autograd.grad(module(inputs_embeds=point).logits[0, -1, 3], point)
        want += (g * x).sum(-1)[0] / 2
    found = method("integrated_gradients").of(example, baseline="zero", steps=2)
    assert np.allclose(found.scores, want, rtol=1e-4, atol=1e-5)


def test_baselines_are_what_they_say() -> None:
    example = of("bert")
    pad = example.model.config.pad_token_id
    swapped = {"input_ids": torch.full_like(example.inputs["input_ids"], pad)}
    found = method("integrated_gradients").of(example, baseline="pad", steps=1)
    want = float(example.model.run(swapped)[0, -1, 3].detach())
    assert found.notes["baseline_value"] == pytest.approx(want, abs=1e-5)
    with pytest.raises(OptionError, match="no mask token"):
        method("integrated_gradients").of(example, baseline="mask")
    with pytest.raises(OptionError, match="known: auto, pad, mask, mean, zero"):
        method("integrated_gradients").of(example, baseline="black")
    with pytest.raises(OptionError, match="steps=0"):
        method("integrated_gradients").of(example, steps=0)


TEXT = "Once upon a time there was a little girl named Lily. She liked to"


@pytest.mark.parametrize(
    "name", ["gpt2", "llama", "bert", "gemma", "qwen3", "olmo2", "bloom", "t5"]
)
def test_integrated_gradients_are_complete_by_default(name: str) -> None:
    """With and without a padding token, layer norms and RMS norms, one stack and two."""
    found = method("integrated_gradients").of(of(name))
    assert found.residual_share < 0.025  # type: ignore[operator]
    assert not found.incomplete


@pytest.mark.parametrize("name", ["bundled:induction", "bundled:deceive"])
def test_integrated_gradients_are_complete_by_default_on_trained_models(name: str) -> None:
    found = method("integrated_gradients").of(Example(interp.load(name), TEXT))
    assert found.residual_share < 0.025  # type: ignore[operator]
    # the padding token of the one is embedded as zero, where its RMS norms jump
    pad = method("integrated_gradients").of(Example(interp.load(name), TEXT), baseline="pad")
    assert pad.incomplete == (name == "bundled:induction")


@pytest.mark.slow
@pytest.mark.parametrize("name", [f.name for f in zoo.having("causal")])
def test_integrated_gradients_by_default_over_every_family(name: str) -> None:
    """Complete, or flagged: where experts or keys are selected the value jumps on the way."""
    found = method("integrated_gradients").of(of(name))
    selects = ("mixtral", "deepseek", "qwen3_moe", "qwen3_next", "gpt_oss", "jamba", "llama4")
    if not name.startswith(selects):
        assert found.residual_share < 0.025  # type: ignore[operator]
    assert found.incomplete == (found.residual_share > 0.1)  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("source", [real("stories260k"), real("tinystories-instruct-3m")])
def test_integrated_gradients_are_complete_by_default_on_story_models(source: str) -> None:
    example = Example(interp.load(source), TEXT)
    assert method("integrated_gradients").of(example).residual_share < 0.025  # type: ignore[operator]


def test_the_padding_token_is_the_baseline_where_it_has_an_embedding() -> None:
    """Not where it is embedded as zero or next to it, and not where there is none."""
    example = of("bert")
    assert example.model.config.pad_token_id is not None
    table = example.model.module.bert.embeddings.word_embeddings.weight
    row = table[example.model.config.pad_token_id]
    for size, kind in ((0.0, "mean"), (0.05, "mean"), (1.0, "pad")):
        with torch.no_grad():
            row.copy_(size * table[example.inputs["input_ids"][0, 0]])
        found = method("integrated_gradients").of(example)
        assert found.notes["baseline"] == kind
        assert found.provenance["options"]["baseline"] == "auto"
        given = method("integrated_gradients").of(example, baseline=kind)
        assert np.array_equal(found.scores, given.scores)
    assert method("integrated_gradients").of(of("gpt2")).notes["baseline"] == "mean"


def test_the_mean_baseline_is_that_of_the_vocabulary(monkeypatch) -> None:
    from interp.attribution.methods import integrated_gradients as declared

    example = of("llama")
    module = sys.modules[declared.function.__module__]
    monkeypatch.setattr(module, "AT_ONCE", 7)
    want = example.model.module.model.embed_tokens.weight.detach().mean(0)
    found = module.baseline_embeddings(example, "mean")
    assert found.shape[:2] == (1, len(example))
    assert torch.allclose(found[0], want.expand(len(example), -1), atol=1e-7)
    assert not module.baseline_embeddings(example, "zero").any()


# --- completeness flags ---------------------------------------------------------------------------


def test_scores_that_miss_their_total_are_flagged_everywhere(tmp_path) -> None:
    example = of("llama")
    wrong = method("integrated_gradients").of(example, baseline="zero")
    right = method("integrated_gradients").of(example)
    assert (wrong.incomplete, right.incomplete) == (True, False)
    assert wrong.residual_share == pytest.approx(abs(wrong.residual / wrong.total))  # type: ignore[operator]
    told = f"({wrong.residual_share:.1%}), more than 10% of the total"
    assert wrong.completeness.startswith("Incomplete: ")
    assert told in wrong.completeness
    assert right.completeness.startswith("Nearly complete: ")
    assert all("due to the 32 steps" in one.completeness for one in (wrong, right))
    assert "incomplete" in repr(wrong)
    assert "incomplete" not in repr(right)
    page = attribution_page([wrong, right])
    assert page.count('<p class="warning" role="note">Incomplete: ') == 1
    assert told in page
    assert told in wrong._repr_html_()
    whole = wrong.to_dict()
    assert (whole["incomplete"], whole["completeness"]) == (True, wrong.completeness)
    assert whole["residual_share"] == wrong.residual_share
    assert right.to_dict()["incomplete"] is False
    assert wrong.to_pandas()["incomplete"].all()
    assert not right.to_pandas()["incomplete"].any()


def test_the_flag_is_raised_above_a_tenth_of_the_total() -> None:
    made = method("gradient_x_input").of(of("llama"))
    for total, share, flagged in (
        (made.scores.sum() / 0.91, 0.09, False),
        (made.scores.sum() / 0.89, 0.11, True),
        (made.scores.sum() / 1.11, 0.11, True),
        (0.0, None, True),
        (None, None, False),
    ):
        one = replace(made, total=total)
        assert one.incomplete == flagged
        assert one.residual_share == (share if share is None else pytest.approx(share))
        assert one.completeness.startswith("Incomplete") == flagged


@pytest.mark.parametrize("name", [*BY_GRADIENT, "integrated_gradients"])
def test_every_method_with_a_total_can_be_flagged(name: str) -> None:
    """A residual is never shown without the flag that its size asks for."""
    found = method(name).of(of("gpt2"))
    assert found.residual_share is not None
    assert found.incomplete == (found.residual_share > 0.1)
    assert found.completeness.startswith("Incomplete") == found.incomplete


@pytest.mark.parametrize("name", ATTRIBUTION_METHODS)
def test_one_statement_says_whether_scores_are_complete(name: str) -> None:
    """What is printed beside the flag never claims the opposite, for any method."""
    found = method(name).of(of("gpt2"))
    text = attribution_text([found], top=1)
    lines = [x for x in text.splitlines() if "omplete" in x]
    assert [x.strip() for x in lines] == [found.completeness]
    exact = found.residual is not None and abs(found.residual) <= 1e-4 * abs(found.total or 0)
    assert found.completeness.startswith("Complete: ") == exact
    assert found.completeness.startswith("Incomplete: ") == found.incomplete


# --- planted mechanisms ---------------------------------------------------------------------------


def repeated(vocab: int, seed: int, period: int = 12, again: int = 5) -> tuple[list[int], int]:
    """BOS, distinct tokens, the first of them again; and where the token that comes next stands."""
    order = torch.randperm(vocab - 1, generator=torch.Generator().manual_seed(seed))[:period] + 1
    return [0, *order.tolist(), *order[:again].tolist()], again + 1


@pytest.fixture(scope="module")
def untokenized_induction() -> interp.Model:
    return interp.load(planted.build("induction").model)


@pytest.fixture(scope="module")
def noise() -> interp.Model:
    return interp.load(planted.build("noise").model)


def hits(model: interp.Model, name: str, prompts: int = 6) -> float:
    """How often the token after the earlier copy has the highest score for the next one."""
    found = 0
    for seed in range(prompts):
        ids, at = repeated(model.d_vocab, seed)
        target = token_logit(model, ids[at])
        found += int(method(name).of(Example(model, ids, target)).scores.argmax() == at)
    return found / prompts


@pytest.mark.parametrize("name", BY_GRADIENT)
def test_induction_is_credited_to_the_token_after_the_earlier_copy(
    name: str, untokenized_induction: interp.Model, noise: interp.Model
) -> None:
    assert hits(untokenized_induction, name) == 1
    assert hits(noise, name) < 0.5


def test_integrated_gradients_find_the_copied_token(untokenized_induction: interp.Model) -> None:
    ids, at = repeated(untokenized_induction.d_vocab, 0)
    example = Example(untokenized_induction, ids, token_logit(untokenized_induction, ids[at]))
    found = method("integrated_gradients").of(example, baseline="zero", steps=16)
    assert at in found.top(2).to_pandas()["position"].tolist()


def test_a_saturated_softmax_hides_what_decides_where_to_look(
    untokenized_induction: interp.Model,
) -> None:
    """Only a softened softmax credits the current token and its earlier copy."""
    ids, at = repeated(untokenized_induction.d_vocab, 1)
    example = Example(untokenized_induction, ids, token_logit(untokenized_induction, ids[at]))
    for name in ("decompx", "attn_lrp", "gradient_x_input"):
        scores = method(name).of(example).scores
        assert abs(scores[[at - 1, -1]]).max() < 0.02 * scores[at]
    softened = method("gim").of(example, temperature=8.0).scores
    assert softened[[at - 1, -1]].min() > 0.2 * softened[at]
    assert set(softened.argsort()[-3:]) == {at - 1, at, len(ids) - 1}
