"""Mean Jacobians of heads: by finite differences, through a planted MLP, and nothing where none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
import zoo

import interp
from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.circuits.named._task import Tried, effects, tried
from interp.circuits.named.jacobian import _effects
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.heads.trials import Lab
from interp.lens.jacobian import jacobian_directions
from interp.model.edits import zero


@pytest.mark.parametrize(
    ("name", "projections"),
    [
        ("gpt2", [f"transformer.h.{i}.attn.c_proj" for i in range(3)]),
        ("llama", [f"model.layers.{i}.self_attn.o_proj" for i in range(3)]),
    ],
)
def test_a_mean_jacobian_is_that_of_finite_differences(name: str, projections: list[str]) -> None:
    """Moving one head's output at all positions at once moves the last stream by their sum."""
    module = zoo.FAMILIES[name].build().double()
    model = interp.load(module, name=name)
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 40, (3, 7), generator=draw)
    direction = torch.randn(2, model.d_model, generator=draw, dtype=torch.double)
    found = jacobian_directions(model, ids.tolist(), direction)
    norm = module.get_submodule("transformer.ln_f" if name == "gpt2" else "model.norm")

    def summed(projection: str, moved: torch.Tensor) -> torch.Tensor:
        streams = []
        hooks = [
            module.get_submodule(projection).register_forward_pre_hook(lambda m, a: a[0] + moved),
            norm.register_forward_pre_hook(lambda m, a: streams.append(a[0].sum((0, 1)))),
        ]
        with torch.no_grad():
            module(input_ids=ids)
        for hook in hooks:
            hook.remove()
        return direction @ streams[0]

    for site in model.sites:
        for head, entry in ((0, 0), (site.n_heads - 1, site.d_v - 1)):
            step = torch.zeros(site.n_heads * site.d_v).double()
            step[head * site.d_v + entry] = 1e-3  # norms of some models round to float32
            projection = projections[site.layer]
            slope = (summed(projection, step) - summed(projection, -step)) / 2e-3
            expected = slope / ids.numel()
            torch.testing.assert_close(found[site][:, head, entry], expected, rtol=3e-3, atol=1e-4)


def _written_by_the_mlp() -> transformers.GPT2LMHeadModel:
    """Heads write where the unembedding is blind; a linear MLP carries it to where it reads."""
    config = transformers.GPT2Config(
        vocab_size=24,
        n_positions=16,
        n_embd=32,
        n_layer=1,
        n_head=4,
        n_inner=32,
        activation_function="linear",
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=None,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    torch.manual_seed(0)
    module = transformers.GPT2LMHeadModel(config).double().eval()
    block: Any = module.transformer.h[0]
    with torch.no_grad():
        module.transformer.wte.weight.normal_()
        block.attn.c_proj.weight.normal_(std=0.1)
        # without a mean, so that centring moves nothing
        block.attn.c_proj.weight[:, :16] -= block.attn.c_proj.weight[:, :16].mean(1, keepdim=True)
        block.attn.c_proj.weight[:, 16:] = 0
        block.attn.c_attn.weight.normal_(std=0.2)
        block.attn.c_proj.bias.zero_()
        block.mlp.c_fc.weight.copy_(torch.eye(32))
        block.mlp.c_proj.weight.zero_()
        block.mlp.c_proj.weight[:16, 16:] = torch.randn(16, 16).double() / 4
        module.lm_head.weight[:, :16] = 0
        module.lm_head.weight[:, 16:].normal_()
    return module


def _on_drawn_prompts(model: interp.Model) -> Tried:
    rng = np.random.default_rng(0)
    clean, corrupted = (rng.integers(1, 24, (16, 8)) for _ in range(2))
    order = rng.permuted(np.tile(np.arange(24), (16, 1)), axis=1)  # two tokens, whatever the logits
    task = logit_difference(
        model,
        Prompts(tuple(map(tuple, clean.tolist()))),
        order[:, -1].tolist(),
        order[:, 0].tolist(),
        position=-1,
        corrupted=Prompts(tuple(map(tuple, corrupted.tolist()))),
        name="planted",
    )
    return tried(model, ContrastTask(task, ({"end": 7},) * 16))


def test_what_heads_write_through_an_mlp_is_found_and_is_no_direct_effect() -> None:
    model = interp.load(_written_by_the_mlp(), name="planted")
    given = _on_drawn_prompts(model)
    found, _ = _effects(model, Lab(0, lambda *_: None), given)
    direct = effects(model, given, given.task.clean)
    [site] = model.sites
    assert direct[site].abs().max() < 1e-6
    removed = []
    for head in range(4):
        with model.edited(zero([Head(0, head)])):
            removed.append(given.clean - tried(model, given.task).clean)
    measured, expected = found[site].flatten().numpy(), torch.stack(removed, 1).flatten().numpy()
    assert np.corrcoef(measured, expected)[0, 1] > 0.9
    assert np.abs(measured).mean() > 0.3 * np.abs(expected).mean()


def test_without_mlps_both_sides_have_the_direct_effects_at_their_own_scales() -> None:
    module: Any = _written_by_the_mlp()
    with torch.no_grad():
        module.transformer.h[0].mlp.c_proj.weight.zero_()
        module.lm_head.weight.normal_()
    model = interp.load(module, name="planted")
    given, [site] = _on_drawn_prompts(model), model.sites
    both = _effects(model, Lab(0, lambda *_: None), given)
    for found, prompts in zip(both, (given.task.clean, given.task.corrupted), strict=True):
        direct = effects(model, given, prompts)[site]
        torch.testing.assert_close(found[site], direct, rtol=1e-6, atol=1e-8)


def test_a_head_of_the_last_layer_has_its_direct_effect_and_a_bystander_none(
    planted_zoo, zoo_model
) -> None:
    rows = interp.score(zoo_model, ["jacobian_effect", "direct_effect"], null="none").to_pandas()
    scores: Any = rows.pivot(index=["layer", "head"], columns="metric", values="score")
    last = scores.loc[3]
    assert len(last) == 8
    assert (last["jacobian_effect"] - last["direct_effect"]).abs().max() < 1e-5
    [induction], [bystander] = (planted_zoo.roles[role] for role in ("induction", "bystander"))
    assert scores["jacobian_effect"][induction] > 9
    assert abs(scores["jacobian_effect"][bystander]) < 0.1  # it attends as induction does
