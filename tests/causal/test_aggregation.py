"""Heads as an ensemble: every row against edits of the model, planted cases, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp import causal
from interp.causal.aggregation import head_aggregation
from interp.causal.gating.learn import halves
from interp.core.errors import OptionError


@pytest.fixture(scope="module")
def aggregated(planted_bystander):
    task = causal.repeats_task(planted_bystander, n=8, max_length=10)
    return head_aggregation(planted_bystander, task, steps=20)


def test_rows_equal_edits_of_the_model(planted_bystander, aggregated) -> None:
    """The factor of a head is an edit that scales it."""
    model = planted_bystander
    task = causal.repeats_task(model, n=8, max_length=10)
    held = halves(task, 0)[1]
    assert aggregated.per_prompt.shape[1] == len(held) < 8
    for row in (0, 1, 3, len(aggregated) - 2):
        edits = [
            interp.model.gate([label], float(w))
            for label, w in zip(aggregated.heads_of, aggregated.weights[row], strict=True)
        ]
        want = []
        for i in held:
            ids = list(task.prompts.ids[i])
            logits = model.run([ids], edits=edits)[0].detach().double().log_softmax(-1)
            want.append(-np.mean([float(logits[p, ids[p + 1]]) for p in task.positions[i]]))
        assert aggregated.per_prompt[row] == pytest.approx(want, abs=1e-4), aggregated.part[row]


def test_induction_needs_its_heads_together(aggregated) -> None:
    rows = aggregated.wide().set_index("part")
    none, full = rows.loc["none", "score"], rows.loc["full", "score"]
    alone = [x for x in rows.index if x.endswith(" alone") and x != "best alone"]
    assert len(alone) == 8
    assert full < 0.6 * none
    assert (rows.loc[alone, "score"] > 0.9 * none).all()  # no head can do it alone
    assert rows.loc["best alone", "lost_low"] > 0
    assert rows.loc["full", "lost"] == 0
    learned = aggregated.weights[list(aggregated.part).index("learned weights")]
    weight = dict(zip(aggregated.heads_of, learned, strict=True))
    assert weight["L1H0"] > 1.2  # the copying head is wanted more
    assert rows.loc["learned weights", "score"] < full


def test_top_keeps_what_is_lost(aggregated) -> None:
    first = aggregated.top(2, by="lowest")
    assert len(first) == 2
    assert first.wide()["lost"].max() <= 0


def test_a_measure_without_gradient_is_fitted_by_another(planted_bystander) -> None:
    model = planted_bystander
    rng = np.random.default_rng(0)
    ids = [rng.permutation(np.arange(1, 30))[:6].tolist() for _ in range(8)]
    prompts = [[*x, *x] for x in ids]
    at = [list(range(6, 11)) for _ in prompts]
    hits = causal.accuracy(model, prompts, at)
    with pytest.raises(OptionError, match="has no gradient"):
        head_aggregation(model, hits)
    by = causal.loss(model, prompts, at)
    found = head_aggregation(model, hits, fit=by, steps=5).wide().set_index("part")
    assert found.loc["full", "score"] > found.loc["none", "score"]


def test_refusals(planted_bystander) -> None:
    model = planted_bystander
    task = causal.repeats_task(model, n=4, max_length=8)
    with pytest.raises(OptionError, match="name two or more"):
        head_aggregation(model, task, heads=["L1H0"])
    with pytest.raises(OptionError, match="give 4 or more"):
        head_aggregation(model, causal.repeats_task(model, n=3, max_length=8))
    with pytest.raises(OptionError, match="fit has 5 prompts"):
        head_aggregation(model, task, fit=causal.repeats_task(model, n=5, max_length=8))


def test_one_layer_of_equal_heads_is_an_ensemble() -> None:
    """Identical heads: each alone loses the same, and the best scale restores the whole."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    module = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=20,
            n_positions=16,
            n_embd=16,
            n_layer=1,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()
    attn = module.transformer.h[0].attn
    with torch.no_grad():
        for start in (0, 16, 32):
            one = attn.c_attn.weight[:, start : start + 4].clone() * 20
            attn.c_attn.weight[:, start : start + 16] = one.repeat(1, 4)
        attn.c_proj.weight.copy_(attn.c_proj.weight[:4].repeat(4, 1))
    model = interp.load(module, name="equal heads")
    prompts = [[i + 1, i + 2, i + 3, i + 4] for i in range(8)]
    task = causal.logit_difference(model, prompts, [5] * 8, [6] * 8)
    found = head_aggregation(model, task, steps=3)
    alone = found.per_prompt[1:5]
    assert np.allclose(alone, alone[:1], atol=1e-5)
    average = found.per_prompt[list(found.part).index("uniform average")]
    assert np.allclose(average, alone[0], atol=1e-5)  # a quarter of four equal heads is one
