"""Retrieval problem: answers are exact, a planted program solves it, a training run learns it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import interp
from interp.causal import retrieval_problem, retrieval_problem_task
from interp.causal.game.game import Game
from interp.core.errors import OptionError, PromptError
from training.forms.looped_program import looped
from training.train_retrieval import Recipe, chain_mass, train_retrieval

SMALL = {"n_chains": 3, "depth": 3}
SIZE = 12  # positions of these


def root(links: list[int], start: int) -> tuple[int, int]:
    """The root of an item and the number of links to it, one link at a time."""
    steps = 0
    while links[start] != start:
        start, steps = links[start], steps + 1
    return start, steps


def test_answers_are_those_of_the_links() -> None:
    made = retrieval_problem(40, **SMALL, seed=3)
    for ids, roots, chain in zip(made.ids.tolist(), made.roots, made.on_chain(), strict=True):
        for i in range(SIZE):
            assert root(ids, i) == (roots[i], made.depths[i])
            assert chain[i].sum() == made.depths[i]
            assert i in (roots[i], *np.flatnonzero(chain[:, roots[i]]))
    assert (made.ancestors(0) == np.arange(SIZE)).all()
    assert (made.ancestors(1) == made.ids).all()
    assert (made.ancestors(SMALL["depth"]) == made.roots).all()
    # every block names each item of the block before once
    blocks = made.ids.reshape(40, 4, 3)
    assert (np.sort(blocks, -1)[:, 1:] == np.arange(9).reshape(3, 3)).all()


def test_an_item_without_one_of_its_links_tells_nothing_about_the_root() -> None:
    """The root given an item's own token is uniform: 600 draws of each, 4.5 standard errors."""
    made = retrieval_problem(1800, **SMALL, seed=1)
    own, answer = made.ids[:, -1], made.roots[:, -1]
    for token in np.unique(own):
        counts = np.bincount(answer[own == token], minlength=3)
        n = counts.sum()
        assert np.abs(counts - n / 3).max() < 4.5 * math.sqrt(n * 2 / 9)


@pytest.mark.parametrize("loops", [1, 2, 3])
def test_a_planted_program_of_enough_layers_solves_it(loops) -> None:
    """Its layers follow one link each, the token is the first link, and a root names itself."""
    model = interp.load(looped(loops, size=SIZE), name="program")
    for depth in range(4):
        task = retrieval_problem_task(model, n=8, **SMALL, depths=[depth], measure="accuracy")
        assert task.chance == 1 / 3
        solved = Game(model, task).clean
        assert solved.eq(float(depth <= loops + 1)).all()


def test_planted_heads_attend_so_many_links_back() -> None:
    model = interp.load(looped(3, size=16), name="program")
    made = retrieval_problem(6, n_chains=4, depth=3)
    for layer, (reads, erases) in enumerate(chain_mass(model, made)):
        # queries of smaller depth read their root, which is then closer
        assert reads["links"][layer + 1] > 0.99
        assert reads["chain"] > 0.99
        assert erases["chain"] < 1e-6
        assert 0.1 < reads["uniform"] < 0.3


def test_what_does_not_fit_is_refused() -> None:
    model = interp.load(looped(1, size=SIZE), name="program")
    with pytest.raises(PromptError, match="at least 20 tokens"):
        retrieval_problem_task(model)
    with pytest.raises(OptionError, match="2 chains"):
        retrieval_problem(n_chains=1)
    for wrong, text in (
        ({"depths": [4]}, "give"),
        ({"depths": []}, "give"),
        ({"measure": "odds"}, r"'odds'; did you mean loss\? \(known: accuracy, loss\)"),
    ):
        with pytest.raises(OptionError, match=text):
            retrieval_problem_task(model, **SMALL, **wrong)


def test_guesses_score_the_chance_that_the_task_states() -> None:
    model = interp.load(looped(1, size=SIZE), name="program")
    task = retrieval_problem_task(model, n=4, **SMALL)
    guess = torch.full((4 * 3, SIZE), -1e9)
    guess[:, :3] = 0.0  # the roots, evenly
    assert task.chance == pytest.approx(math.log(3))
    assert task.values(guess, range(4)).tolist() == pytest.approx([math.log(3)] * 4)


@pytest.mark.slow
def test_a_short_training_learns_two_links_with_one_layer_and_not_three() -> None:
    recipe = Recipe(layers=1, depth=3, steps=150, every=150)
    first, last = train_retrieval(recipe, 0)["moments"]
    assert max(first["accuracy"][2:]) < 0.3
    assert min(last["accuracy"][:3]) > 0.99
    assert last["accuracy"][3] < 0.8
    assert max(h["ablation"] for h in last["heads"].values()) > 0.2
