"""Training of models to hold a known algorithm: forward pass, draws, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.planted.trained import trained_card, trained_model, untrained
from interp.planted.trained.cases import CASES
from training.interchange import Taken, nodes_of, run
from training.train import own_torch
from training.train_known import MOST, Recipe, certified, drawn_masks, made, train


def test_the_forward_pass_is_that_of_gpt2() -> None:
    case = CASES["names"]
    model = untrained(case)
    ids = torch.from_numpy(case.draw(np.random.default_rng(0), 6))
    ends = [3, case.length - 1]
    with torch.no_grad():
        mine = run(model, ids, ends)
        torch.testing.assert_close(mine.logits, model(ids).logits[:, ends], atol=1e-5, rtol=1e-5)
        # nodes taken from the same prompts change nothing; from others, each changes the logits
        every = nodes_of(case.layers, case.heads)
        none = Taken(mine, torch.ones(6, len(every), dtype=torch.bool))
        torch.testing.assert_close(run(model, ids, ends, none).logits, mine.logits)
        other = run(model, ids.flip(0), ends)
        for i in range(len(every)):
            mask = torch.zeros(6, len(every), dtype=torch.bool)
            mask[2, i] = True
            moved = (run(model, ids, ends, Taken(other, mask)).logits - mine.logits).abs()
            assert float(moved[2].max()) > 1e-6, every[i]
            assert float(moved[[0, 1, 3, 4, 5]].max()) == 0


def test_every_node_is_drawn_and_variables_take_their_own() -> None:
    case = CASES["brackets"]
    names = nodes_of(case.layers, case.heads)
    taken, mask = drawn_masks(case, np.random.default_rng(0), 4000)
    for variable, node in case.nodes.items():
        assert (mask[:, names.index(node)] == taken[variable]).all()
    outside = [i for i, name in enumerate(names) if name not in case.nodes.values()]
    only = mask[:, outside]
    assert only[only.sum(1) == 1].any(0).all()  # each singly
    assert only.all(1).mean() > 0.1  # all together
    assert (mask.sum(1) == 0).sum() < 400


def test_a_variable_from_another_prompt_changes_what_depends_on_it() -> None:
    case = CASES["two_circuits"]
    rng = np.random.default_rng(3)
    base, other = case.draw(rng, 400), case.draw(rng, 400)
    plain, _, _ = case.run(base)
    _, source, _ = case.run(other)
    for variable in case.nodes:
        moved, _, _ = case.run(base, source, {variable: np.ones(400, dtype=bool)})
        for task in case.ends:
            changes = bool((moved[task] != plain[task]).any())
            assert changes == (variable in case.needed(task)), (variable, task)


def test_a_model_that_does_not_hold_its_algorithm_is_not_written(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("training.train_known.MEASURED", 100)
    with (
        own_torch(0, 1),
        pytest.raises(SystemExit, match="induction: not used as truth, it is right too rarely"),
    ):
        made("induction", Recipe(steps=2, rows=8), 0, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_required_of_a_model() -> None:
    stated = trained_card("names")
    assert certified(stated)
    worst = {**stated["agreement"], "strict L0H1": 0.98}
    assert not certified(stated | {"agreement": worst})
    moved = {"L0H1": {"resampled": MOST + 0.01, "mean": 0.0, "zero": 0.0}}
    assert not certified(stated | {"effects_outside": moved})


@pytest.mark.slow
def test_training_learns_in_few_steps() -> None:
    case = CASES["induction"]
    with own_torch(0, 1):
        model, steps = train(case, Recipe(steps=250, guided=100), 0)
    assert steps == 250
    ids = case.draw(np.random.default_rng(5), 200)
    with torch.no_grad():
        right = model(torch.from_numpy(ids)).logits[:, 8].argmax(-1).numpy()
    assert (right == case.run(ids)[0]["induction"]).mean() > 0.9
    assert trained_model("induction").config.n_layer == case.layers
