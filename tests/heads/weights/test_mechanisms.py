"""Planted heads come out on top, random weights at chance; rewritings of a model score alike."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import zoo
from heads.weights.families import NAMES, scores, together
from heads.weights.perturbed import perturb
from torch import Tensor

import interp
from interp import planted
from interp.heads.scoring import score
from interp.heads.weights import composition_scores
from interp.heads.weights._composition import composition_matrices

# --- planted models


@pytest.fixture(scope="module", params=[0, 1, 2])
def grouped_induction(request):
    made = planted.build("induction", kv_heads=(4, 2, 1)[request.param], seed=request.param)
    return made, interp.load(made.model, name="planted")


def by_head(made, found) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for (_, layer), row in found.items():
        for head, x in enumerate(row):
            values.setdefault(made.role(layer, head), []).append(float(x))
    return values


def test_the_planted_induction_head_copies_and_no_other_does(grouped_induction):
    made, model = grouped_induction
    for name, least in (("ov_copying", 0.999), ("copying_score", 0.9)):
        found = by_head(made, scores(model, name))
        assert min(found["induction"]) > least, name
        others = found["noise"] + found["previous_token"]  # writes where the unembedding is blind
        assert max(others) < (0.3 if name == "ov_copying" else -0.8), name


def test_the_planted_previous_token_head_makes_the_keys_of_the_induction_head(grouped_induction):
    made, model = grouped_induction
    ((layer, head),), ((late_layer, late_head),) = (
        made.roles[role] for role in ("previous_token", "induction")
    )
    writer, reader = interp.Head(layer, head), interp.Head(late_layer, late_head)
    (first,) = composition_scores(model, "k").top(1)
    assert (first["stack"], first["later_stack"]) == ("decoder", "decoder")
    assert (first["writes"], first["reads"]) == (str(writer), str(reader))
    best = scores(model, "k_composition")["decoder", late_layer]
    assert best.argmax() == late_head
    for kind in "qv":  # by nothing else do the two compose
        ((score_, _),) = composition_matrices(model, kind).values()
        assert score_[head, late_head] < score_.mean() + 0.005


def test_copy_suppression_is_negative_copying():
    made = planted.build("copy_suppression", seed=1)
    model = interp.load(made.model, name="planted")
    found = by_head(made, scores(model, "ov_copying"))
    assert max(found["copy_suppression"]) < -0.99
    assert min(found["noise"]) > -0.3


def test_a_bystander_copies_nowhere():
    made = planted.build("bystander", seed=1)
    model = interp.load(made.model, name="planted")
    found = by_head(made, scores(model, "ov_copying"))
    assert abs(found["bystander"][0]) < 0.1 < found["induction"][0]


# --- nulls and invariances


def test_random_weights_score_near_chance():
    """A wider model than the zoo's, for chance is a matter of width: 96 heads of rank 16 in 128."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=256, n_embd=128, n_layer=4, n_head=8, n_positions=16)
    config.tie_word_embeddings = False
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = interp.load(GPT2LMHeadModel(config).eval(), name="random")
    copying = together(model, "ov_copying")
    assert abs(copying.mean()) < 0.05
    assert np.abs(copying).max() < 0.6
    shares = (together(model, "copying_score", tokens=20) + 1) / 2
    assert shares.mean() == pytest.approx(1 / 20, abs=0.006)
    for kind in "qkv":
        every = composition_scores(model, kind).score
        assert abs(every.mean()) < 0.001  # of a baseline of 0.088
        assert np.abs(every).max() < 0.02
    table = score(model, ["ov_copying", "k_composition"]).to_pandas()
    assert abs(table.score - table.null).mean() < 0.2
    assert (table.n == 1).all()
    assert table["sem"].isna().all()


def rotated(name: str) -> interp.Model:
    """Another basis inside every head of Llama: q and k by one rotation, v and o by another."""
    module = copy.deepcopy(zoo.FAMILIES[name].model())
    draw = torch.Generator().manual_seed(4)

    def turn() -> Tensor:
        return torch.linalg.qr(torch.randn(8, 8, generator=draw)).Q

    with torch.no_grad():
        for layer in module.model.layers:
            attention = layer.self_attn
            for kv in range(2):
                inner, value = turn(), turn()
                own = slice(8 * kv, 8 * kv + 8)
                attention.k_proj.weight[own] = inner @ attention.k_proj.weight[own]
                attention.v_proj.weight[own] = value @ attention.v_proj.weight[own]
                for head in range(3 * kv, 3 * kv + 3):
                    at = slice(8 * head, 8 * head + 8)
                    attention.q_proj.weight[at] = inner @ attention.q_proj.weight[at]
                    attention.o_proj.weight[:, at] = attention.o_proj.weight[:, at] @ value.T
    return interp.load(module, name=name)


def regained(name: str) -> interp.Model:
    """Gains of norms moved into the matrices that read them: the same function."""
    module = perturb(zoo.FAMILIES[name].build(), seed=7)
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for layer in module.model.layers:
            change = torch.rand(48, generator=draw) + 0.5
            layer.input_layernorm.weight.mul_(change)
            for part in ("q_proj", "k_proj", "v_proj"):
                getattr(layer.self_attn, part).weight.div_(change)
        change = torch.rand(48, generator=draw) + 0.5
        module.model.norm.weight.mul_(change)
        module.lm_head.weight.div_(change)
    return interp.load(module, name=name)


@pytest.mark.parametrize("name", NAMES)
def test_a_heads_own_basis_does_not_matter(name):
    plain = interp.load(zoo.FAMILIES["llama"].model(), name="llama")
    np.testing.assert_allclose(together(plain, name), together(rotated("llama"), name), atol=5e-5)


@pytest.mark.parametrize("name", NAMES)
def test_where_a_gain_is_kept_does_not_matter(name):
    plain = interp.load(perturb(zoo.FAMILIES["llama"].build(), seed=7), name="llama")
    np.testing.assert_allclose(together(plain, name), together(regained("llama"), name), atol=5e-5)


@pytest.mark.parametrize("name", ["ov_copying", "copying_score", "k_composition", "ov_rank"])
def test_size_does_not_matter(name):
    plain = interp.load(zoo.FAMILIES["gpt2"].model(), name="gpt2")
    module = zoo.FAMILIES["gpt2"].build()
    with torch.no_grad():
        for layer in module.transformer.h:
            layer.attn.c_attn.weight.mul_(0.3)
            layer.attn.c_proj.weight.mul_(2)
    np.testing.assert_allclose(
        together(plain, name), together(interp.load(module), name), atol=2e-5
    )
