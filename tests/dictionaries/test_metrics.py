"""Core metrics: values by definition, the published bug, controls, and another implementation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import interp
from interp import causal
from interp.core.errors import OptionError
from interp.dictionaries import ablate_features, score_dictionary, train_dictionary
from interp.dictionaries.core_metrics import explained_variance
from interp.dictionaries.dictionary import Dictionary
from interp.model.edits import mean, set_z, zero


@pytest.fixture(scope="module")
def held_out(bundled_induction) -> interp.Prompts:
    return interp.repeats(bundled_induction, n=10, max_length=12, seed=9)


@pytest.fixture(scope="module")
def trained(bundled_induction):
    prompts = interp.repeats(bundled_induction, n=60, max_length=12)
    return train_dictionary(
        bundled_induction, prompts, layer=1, d_sae=128, steps=150, batch_rows=256
    )


def exact(model, **about) -> Dictionary:
    """Reconstructs everything: an identity and its negative."""
    both = torch.cat([torch.eye(128), -torch.eye(128)])
    return Dictionary(
        "standard", both.T, both, torch.zeros(256), torch.zeros(128), "z", 1, n_heads=8, **about
    )


def test_explained_variance_is_that_of_the_definition_off_centre() -> None:
    """The mean is of x, not of x²: the published variant gives above 1 on these rows."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 6, generator=rng) + 4.0
    y = x + 0.3 * torch.randn(4000, 6, generator=rng)
    right = 1 - float(((x - y) ** 2).sum() / ((x - x.mean(0)) ** 2).sum())
    assert explained_variance(x, y) == pytest.approx(right, abs=1e-6)
    assert explained_variance(x, y) == pytest.approx(0.91, abs=0.005)
    squares = x.pow(2)
    published = 1 - float(
        ((x - y) ** 2).sum(1).mean() / (squares.sum(1).mean() - squares.mean(0).pow(2).sum())
    )
    assert published > 1
    far = (x + 1e4).float(), (y + 1e4).float()  # float32 sums would lose this
    assert explained_variance(*far) == pytest.approx(0.91, abs=0.01)


def test_an_exact_dictionary_scores_one_and_an_empty_one_what_zeros_do(
    bundled_induction, held_out
) -> None:
    found = score_dictionary(bundled_induction, exact(bundled_induction), held_out)
    for metric in ("loss_recovered", "loss_recovered_mean", "kl_score", "explained_variance"):
        assert found[metric].score[0] == pytest.approx(1, abs=1e-4)
    assert found["reconstruction_bias"].score[0] == pytest.approx(1, abs=1e-5)
    assert found["l0"].score[0] == pytest.approx(128, abs=0.5)  # one of each pair
    nothing = Dictionary(
        "standard",
        torch.zeros(128, 4),
        torch.ones(4, 128),
        torch.zeros(4),
        torch.zeros(128),
        "z",
        1,
    )
    empty = score_dictionary(bundled_induction, nothing, held_out, controls=False)
    assert empty["loss_recovered"].score[0] == pytest.approx(0, abs=1e-6)
    assert empty["kl_score"].score[0] == pytest.approx(0, abs=1e-6)
    assert empty["dead_share"].score[0] == 1
    assert empty["l0"].score[0] == 0


def with_zeros(block, site: str):
    """The equations of a Llama block, with zeros after the first position at one place."""

    def at(name: str, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:, :1], 0 * x[:, 1:]], 1) if name == site else x

    def forward(hidden_states, **options):
        x = at("resid_pre", hidden_states)
        a = block.self_attn(hidden_states=block.input_layernorm(x), **options)[0]
        x = at("resid_mid", x + at("attn_out", a))
        return at("resid_post", x + block.mlp(block.post_attention_layernorm(x)))

    return forward


@pytest.mark.parametrize("site", ["attn_out", "resid_pre", "resid_mid", "resid_post"])
def test_zeros_are_those_of_a_model_made_by_hand(bundled_induction, held_out, site) -> None:
    """Every reader of the place reads them, the skip connection past the MLP included."""
    nothing = Dictionary(
        "standard",
        torch.zeros(128, 4),
        torch.ones(4, 128),
        torch.zeros(4),
        torch.zeros(128),
        site,
        1,
    )
    found = score_dictionary(bundled_induction, nothing, held_out, controls=False)
    module = copy.deepcopy(bundled_induction.module)
    block = module.model.layers[1]
    block.forward = with_zeros(block, site)
    losses = []
    for ids in map(torch.tensor, held_out.ids):
        with torch.no_grad():
            logits = module(ids[None]).logits[0, 1:-1]
        losses.append(torch.nn.functional.cross_entropy(logits, ids[2:], reduction="none"))
    assert found.zero_loss == pytest.approx(float(torch.cat(losses).mean()), abs=1e-4)
    assert found["loss_recovered"].score[0] == pytest.approx(0, abs=1e-6)


def test_losses_are_those_of_edits(bundled_induction, held_out, trained) -> None:
    """Zero and mean ablation by `model.edited`, one prompt at a time, without padding."""
    found = score_dictionary(bundled_induction, trained, held_out, controls=False)
    heads = [f"L1H{h}" for h in range(8)]
    later = slice(1, None)
    seen = [
        bundled_induction.capture([ids], ["z"], layers=1)["z", 1][:, :, 1:] for ids in held_out.ids
    ]
    middle = torch.cat([z[0] for z in seen], 1).mean(1)
    d = trained.dictionary

    def loss(edit) -> float:
        total, n = 0.0, 0
        for ids in held_out.ids:
            with torch.no_grad():
                logits = bundled_induction.run([ids], edits=[] if edit is None else [edit(ids)])[0]
            nats = torch.nn.functional.cross_entropy(
                logits[1:-1].double(), torch.tensor(ids[2:]), reduction="sum"
            )
            total, n = total + float(nats), n + len(ids) - 2
        return total / n

    def rebuilt(ids):
        z = bundled_induction.capture([ids], ["z"], layers=1)["z", 1]
        new = d(z.transpose(1, 2).flatten(2)).unflatten(2, (8, -1)).transpose(1, 2)
        return set_z(heads, new, positions=later)

    clean = loss(None)
    zeros = loss(lambda ids: zero(heads, positions=later))
    means = loss(
        lambda ids: mean(heads, over="dataset", reference={("decoder", 1): middle}, positions=later)
    )
    mine = loss(rebuilt)
    assert found.unchanged_loss == pytest.approx(clean, abs=1e-5)
    assert found.zero_loss == pytest.approx(zeros, abs=1e-5)
    assert found.mean_loss == pytest.approx(means, abs=1e-5)
    assert found["loss_recovered"].score[0] == pytest.approx(
        (zeros - mine) / (zeros - clean), abs=1e-4
    )


def test_a_trained_dictionary_is_above_all_controls(bundled_induction, held_out, trained) -> None:
    found = score_dictionary(bundled_induction, trained, held_out)
    frame = found.to_pandas().set_index(["dictionary", "metric"])
    others = {k for k in found.dictionary.tolist() if k != "trained"}
    assert others == {"untrained", "shuffled decoder", "shuffled codes", "random directions"}
    for metric in ("loss_recovered", "kl_score", "explained_variance"):
        mine = frame.loc[("trained", metric)]
        for other in others:
            control = frame.loc[(other, metric)]
            assert mine["low"] > control["high"], (metric, other)
            same = abs(frame.loc[(other, "l0"), "score"] - frame.loc[("trained", "l0"), "score"])
            assert same < 0.5
    np.testing.assert_allclose(found.per_prompt[:3].mean(1), found.score[:3])
    assert "loss_recovered: trained" in repr(found)


def test_too_few_prompts_are_refused(bundled_induction, trained) -> None:
    with pytest.raises(OptionError, match="give at least 2"):
        score_dictionary(bundled_induction, trained, [[1, 2, 3]])


def test_a_feature_that_is_subtracted_is_its_contribution(bundled_induction) -> None:
    """A dictionary with one feature per head's direction: without it, z loses that part."""
    task = causal.repeats_task(bundled_induction, n=6)
    d = exact(bundled_induction)
    found = ablate_features(bundled_induction, d, task, [3, 131, 5])
    prompts = task.prompts
    z = bundled_induction.capture(prompts, ["z"], layers=1)["z", 1].clone()
    with torch.no_grad():
        clean = bundled_induction.run(prompts)
        z[:, 0, :, 3] = z[:, 0, :, 3].clamp_max(0)  # feature 3 is the positive part of entry 3
        logits = bundled_induction.run(prompts, [set_z([f"L1H{h}" for h in range(8)], z)])

    def values(x):
        rows = torch.stack([x[i, p] for i, at in enumerate(task.positions) for p in at])
        return task.values(rows, range(len(task))).numpy()

    np.testing.assert_allclose(found.per_prompt[0], values(logits) - values(clean), atol=1e-5)
    assert np.abs(found.per_prompt[0]).max() > 0
    assert found.to_pandas()["null"].notna().all()
    with pytest.raises(OptionError, match="0 to 255"):
        ablate_features(bundled_induction, d, task, [256])
