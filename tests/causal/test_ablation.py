"""Ablation where the right answer is known: planted heads, and formulas by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import zoo

from interp.causal import all_but_one, leave_one_out, logit_difference, loss, repeats_task
from interp.causal.game.game import Game
from interp.core.errors import OptionError, UnknownName
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.core.standard_errors import standard_error
from interp.core.statistics import bootstrap_interval
from interp.model import edits
from interp.model.locate.probe import probe
from interp.planted import build


@pytest.fixture(scope="module")
def planted_tasks():
    """Planted models by name, with their task: `[BOS] r r` and the loss on the second copy."""
    made = {}

    def get(name):
        if name not in made:
            p = build(name, layers=3 if name == "backup" else 2)
            model = probe(p.model, f"planted:{name}")
            made[name] = p, model, repeats_task(model, n=6, max_length=12)
        return made[name]

    return get


def heads_of(planted, *roles):
    return {str(Head(*h)) for role in roles for h in planted.roles[role]}


def test_players_equal_but_for_rounding_stay_in_their_order(planted_tasks):
    _, model, task = planted_tasks("bystander")
    found = leave_one_out(model, task)
    scores = 3 + 1e-9 * np.arange(float(len(found.players.labels)))
    scores[[1, 2, 4]] = 3.001, np.nan, -3
    ranked = replace(found, per_prompt=scores[:, None], magnitude=True)
    assert ranked.order() == [1, 0, 3, 5, 6, 7, 4, 2]
    assert list(ranked.top(2).players.labels) == [found.players.labels[i] for i in (1, 0)]
    scores[3] = np.inf
    assert replace(ranked, per_prompt=scores[:, None]).order() == [3, 1, 0, 5, 6, 7, 4, 2]
    scores[3] = 0
    assert replace(ranked, per_prompt=0 * scores[:, None]).order() == [0, 1, 3, 4, 5, 6, 7, 2]


@pytest.mark.parametrize("kind", ["zero", "mean-batch", "mean-position", "uniform-attention"])
def test_the_working_heads_come_first_and_the_bystander_is_near_zero(planted_tasks, kind):
    p, model, task = planted_tasks("bystander")
    found = leave_one_out(model, task, kind=kind)
    assert set(found.top(2).players.labels) == heads_of(p, "previous_token", "induction")
    scores = dict(zip(found.players.labels, found.score, strict=True))
    for label in heads_of(p, "bystander", "noise"):
        assert abs(scores[label]) < 1e-3
    assert min(found.helps()[np.argsort(-found.helps())[:2]]) > 0.5
    apart = replace(found, clusters=None)  # the prompts have too few periods for an interval
    low, high = apart.bounds()[found.players.labels.index(found.top(1).players.labels[0])]
    assert 0.5 < low < found.top(1).score[0] < high
    null = found.table.to_pandas()["null"]
    assert null.abs().max() < 0.05


def test_a_backup_head_shows_only_when_the_head_it_stands_in_for_is_out(planted_tasks):
    p, model, task = planted_tasks("backup")
    alone = leave_one_out(model, task, null="none")
    scores = dict(zip(alone.players.labels, alone.score, strict=True))
    (main,), (backup,) = heads_of(p, "induction"), heads_of(p, "backup")
    assert abs(scores[main]) < 1e-3 > abs(scores[backup])  # each covers for the other
    (without,) = p.roles["induction"]
    gone = leave_one_out(model, task, null="none", without=[without])
    scores = dict(zip(gone.players.labels, gone.score, strict=True))
    assert scores[backup] > 1
    assert backup in set(gone.top(2).players.labels)


def test_one_head_alone_does_the_work_of_its_layer(planted_tasks):
    p, model, task = planted_tasks("induction")
    found = all_but_one(model, task, null="none")
    best = {found.top(8).players.labels[i] for i in range(2)}
    assert best == heads_of(p, "previous_token", "induction")
    scores = dict(zip(found.players.labels, found.score, strict=True))
    assert max(abs(scores[label]) for label in best) < 1e-3
    game = Game(model, task)
    gates = torch.ones(1, 8)
    gates[0, 1:4] = 0
    want = (game.values(gates)[0] - game.clean).mean()
    assert scores["L0H0"] == pytest.approx(-float(want), abs=1e-6)  # a loss that rises
    with pytest.raises(OptionError, match="keeps one player of a layer"):
        all_but_one(model, task, players="layers")


def test_the_table_says_what_was_done():
    model = probe(zoo.FAMILIES["t5"].build("sdpa"), "t5")
    inputs = zoo.FAMILIES["t5"].inputs(batch=3)
    task = logit_difference(model, inputs, 5, 6)
    found = leave_one_out(model, task, kind="mean-batch", seed=3)
    table = found.table.to_pandas()
    assert set(table["stack"]) == {"encoder", "decoder", "cross"}
    assert len(table) == 36
    assert set(table["metric"]) == {"ablation:kind=mean-batch,task=logit_difference"}
    assert set(table["unit"]) == {"logits (+ helps)"}
    assert set(table["n"]) == {3}
    np.testing.assert_allclose(table["score"], found.per_prompt.mean(1))
    np.testing.assert_allclose(table["sem"], found.per_prompt.std(1, ddof=1) / math.sqrt(3))
    assert table["null"].abs().max() > 0
    (made,) = found.table.provenance.values()
    assert made["kind"] == "mean-batch"
    assert made["null"] == "random-init"
    assert made["seed"] == 3
    assert made["task_hash"] == task.hash
    assert made["n_prompts"] == 3
    assert made["content_hash"] == model.content_hash
    cross = leave_one_out(model, task, stack="cross", null="none")
    assert len(cross.players) == 12
    assert cross.table.to_pandas()["null"].isna().all()
    same = leave_one_out(model, task, null="none")
    of_cross = ["cross" in label for label in same.players.labels]
    np.testing.assert_allclose(cross.score, same.score[of_cross], atol=1e-5)


def test_groups_give_their_score_to_each_head():
    model = probe(zoo.FAMILIES["llama"].build("sdpa"), "llama")
    task = repeats_task(model, n=2, max_length=6)
    found = leave_one_out(model, task, players="kv_groups", null="none")
    table = found.table.to_pandas()
    assert found.metric == "ablation:kind=zero,players=kv_groups,task=second_copy_loss"
    assert len(found.players) == 6
    for _, rows in table.groupby(["layer", "kv_head"]):
        assert len(rows) == 3
        assert rows["score"].nunique() == 1


def test_resampling_uses_the_corrupted_prompts_or_another_prompt():
    model = probe(zoo.FAMILIES["gpt2"].build("sdpa"), "gpt2")
    clean, other = Prompts(((5, 6, 7), (8, 9, 10))), Prompts(((11, 12, 13), (14, 15, 16)))
    task = loss(model, clean).with_corrupted(other, model)
    found = leave_one_out(model, task, kind="resample", null="none")
    drawn = leave_one_out(model, loss(model, clean), kind="resample", null="none")
    for importance, source in ((found, other), (drawn, Prompts(clean.ids[::-1]))):
        z = model.capture(source, ["z"]).z_by_site()
        game = Game(model, task)
        for player, head in ((0, (0, 0)), (9, (1, 3)), (17, (2, 5))):
            with torch.no_grad():
                logits = model.run(clean, [edits.resample(head, z)])
            want = task.values(game.batches[0].wanted.of(logits), (0, 1)) - game.clean
            np.testing.assert_allclose(importance.per_prompt[player], want, atol=1e-5)


def test_a_dataset_mean_is_taken_over_the_reference():
    model = probe(zoo.FAMILIES["gpt2"].build("sdpa"), "gpt2")
    task = repeats_task(model, n=2, max_length=6)
    reference = Prompts(((5, 6, 7, 8), (9, 10)))
    found = leave_one_out(model, task, kind="mean-dataset", reference=reference, null="random-init")
    game = Game(model, task)
    edit = edits.mean((1, 4), over="dataset", reference=model.mean_z(reference))
    with torch.no_grad():
        logits = model.run(task.prompts, [edit])
    want = task.values(game.batches[0].wanted.of(logits), (0, 1)) - game.clean
    np.testing.assert_allclose(found.per_prompt[10], want, atol=1e-5)
    assert found.table.to_pandas()["null"].notna().all()


def test_one_prompt_has_no_standard_error():
    assert np.isnan(standard_error(np.ones((2, 1)))).all()


def test_options_reach_the_null_too():
    model = probe(zoo.FAMILIES["llama"].build("sdpa"), "llama")
    task = repeats_task(model, n=2, max_length=6)
    found = leave_one_out(
        model,
        task,
        players="kv_groups",
        stack="decoder",
        without=["L0H0"],
        check=False,
        max_tokens=20,
        seed=4,
    )
    assert found.table.to_pandas()["null"].notna().all()
    assert len(found.table) == 17
    again = leave_one_out(
        model, task, players="kv_groups", stack="decoder", without=["L0H0"], seed=5
    )
    assert (again.table.to_pandas()["null"] != found.table.to_pandas()["null"]).all()
    np.testing.assert_allclose(again.score, found.score, atol=1e-5)


def test_bad_intervals_and_nulls_are_refused():
    with pytest.raises(OptionError, match="at least two"):
        bootstrap_interval(np.ones((2, 1)))
    with pytest.raises(OptionError, match="level"):
        bootstrap_interval(np.ones((2, 3)), 1.0)
    with pytest.raises(OptionError, match="known: percentile, bca"):
        bootstrap_interval(np.ones((2, 3)), method="normal")
    model = probe(zoo.FAMILIES["gpt2"].build("sdpa"), "gpt2")
    with pytest.raises(
        UnknownName, match="unknown value of null 'shuffled'; known: none, random-init"
    ):
        leave_one_out(model, repeats_task(model, n=2, max_length=4), null="shuffled")
