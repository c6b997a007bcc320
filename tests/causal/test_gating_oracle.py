"""Causal head gating beside the authors' package, where it is installed.

The package (nam-causal-head-gating 0.1.0) calls its stages "positive" and "negative" after the sign
of its regulariser. Its stage "positive" pushes gates towards 1 and "negative" towards 0, the
opposite of what its documentation says, so stages are compared by what they do.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from interp.causal import learn_gates, repeats_task
from interp.causal.game.game import Game
from interp.causal.gating.learn import halves
from interp.causal.gating.units import selected

chg = pytest.importorskip(
    "causal_head_gating", reason="pip install nam-causal-head-gating to compare with it"
)


def batch(task):
    """Padded ids and a mask of the tokens that the task predicts."""
    ids = [list(x) for x in task.prompts.ids]
    rows = torch.zeros(len(ids), max(map(len, ids)), dtype=torch.long)
    read = torch.zeros(rows.shape, dtype=torch.bool)
    for i, x in enumerate(ids):
        rows[i, : len(x)] = torch.tensor(x)
        read[i, [p + 1 for p in task.positions[i]]] = True
    return rows, read


def test_the_loss_under_gates_equals_that_of_the_package(bundled_induction):
    model = bundled_induction
    task = repeats_task(model, n=4, max_length=8)
    rows, read = batch(task)
    gates = torch.rand(3, 2, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs = -chg.CHG(model.module).get_logp(gates, rows, read, agg="mean")
    ours = Game(model, task).values(gates.flatten(1).double())
    assert ours.numpy() == pytest.approx(theirs.T.numpy(), abs=1e-4)


def test_heads_under_pressure_towards_0_and_1_agree_with_the_package(bundled_induction):
    model = bundled_induction
    task = repeats_task(model, n=8, max_length=10)
    found = learn_gates(model, task, method="causal", n_restarts=2, steps=150, n_random=2)
    rows, read = batch(selected(task, halves(task, 0)[0]))
    module = copy.deepcopy(model.module).requires_grad_(False)
    data = chg.MaskedSequenceDataset(pad_token_id=1, input_ids=rows, loss_masks=read)
    torch.manual_seed(0)
    trainer = chg.CHGTrainer(
        module,
        data,
        num_masks=2,
        batch_size=len(rows),
        lr=0.3,
        lr_reg=0.3,
        l1_weight=0.02 * found.provenance["span"],
    )
    for stage in ("none", "positive", "negative"):
        for _ in trainer.fit_stage(stage, 150, show_progress=False):
            pass
        if stage == "none":
            with torch.no_grad():
                trainer.mask_logits_pos.copy_(trainer.mask_logits)
                trainer.mask_logits_neg.copy_(trainer.mask_logits)
    towards_1, towards_0 = (
        x.sigmoid().detach().mean(0).flatten().numpy()
        for x in (trainer.mask_logits_pos, trainer.mask_logits_neg)
    )
    assert towards_1.mean() > towards_0.mean()  # the names are reversed in the package
    assert found.upper is not None
    lower, upper = found.score, found.upper.mean(0)
    assert np.corrcoef(lower, towards_0)[0, 1] > 0.6
    # kept under pressure by all restarts of both
    ours = {x for x, r in zip(found.labels, found.roles, strict=True) if r == "necessary"}
    theirs = {x for x, g in zip(found.labels, towards_0, strict=True) if g > 0.9}
    assert len(ours & theirs) >= 0.7 * min(len(ours), len(theirs)) > 0
    assert np.abs((upper > 0.5).mean() - (towards_1 > 0.5).mean()) < 0.2
