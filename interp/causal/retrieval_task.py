"""Retrieval problem: chains of links that a model follows from an item to its root.

Items stand in blocks of `chains` items. The token of an item is a position: an item of the first
block (a root) names itself, and an item of every later block names one item of the block before it,
in random order. The answer at an item is the root that is reached by following its links; the
number of links is the item's depth, which is the number of its block. Whoever misses one link of a
chain knows nothing about its root, so that guessing has accuracy 1 / chains exactly.

Reference: Musat 2025, "Mechanism and Emergence of Stacked Attention Heads in Multi-Layer
Transformers" (arXiv 2411.12118), poses the problem; the blocks are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Bool, Int

from interp.causal.measures import accuracy, loss
from interp.causal.task import Task
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

RetrievalMeasure = Literal["loss", "accuracy"]


@dataclass(frozen=True, eq=False)
class RetrievalProblem:
    """Random instances of the retrieval problem.

    Args:
        ids: the links, one row per prompt; a token is the position that it names.
        roots: the answer at every position.
        chains: items per block.
        depth: depth of the last block.
    """

    ids: Int[np.ndarray, "prompt pos"]
    roots: Int[np.ndarray, "prompt pos"]
    chains: int
    depth: int

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def depths(self) -> Int[np.ndarray, " pos"]:
        """Depth of every position: the links from it to its root."""
        return np.arange(self.ids.shape[1]) // self.chains

    def ancestors(self, links: int) -> Int[np.ndarray, "prompt pos"]:
        """Return the position that `links` links lead to; a root leads to itself."""
        at = np.broadcast_to(np.arange(self.ids.shape[1]), self.ids.shape)
        for _ in range(links):
            at = np.take_along_axis(self.ids, at, 1)
        return at

    def on_chain(self) -> Bool[np.ndarray, "prompt query key"]:
        """Return which earlier positions are on the chain of each position, itself excluded."""
        n, size = self.ids.shape
        linked = np.zeros((n, size, size), dtype=bool)
        for links in range(1, self.depth + 1):
            np.put_along_axis(linked, self.ancestors(links)[:, :, None], True, 2)
        linked[:, np.arange(size), np.arange(size)] = False
        return linked


def retrieval_problem(
    n: int = 64, *, n_chains: int = 4, depth: int = 4, seed: int = 0
) -> RetrievalProblem:
    """Draw instances of the retrieval problem, with the answer at every position.

    Args:
        n: number of prompts.
        n_chains: items per block, at least 2; guessing is right once in so many.
        depth: links from the last block to the roots, at least 1.
        seed: seed of the links.

    Raises:
        OptionError: a number is too small.

    Reference: Musat 2025, arXiv 2411.12118.
    """
    if n < 1 or n_chains < 2 or depth < 1:
        raise OptionError(
            f"n={n}, n_chains={n_chains}, depth={depth}: give at least 1 prompt, 2 chains and "
            "depth 1"
        )
    rng = np.random.default_rng(seed)
    order = rng.random((n, depth, n_chains)).argsort(-1)  # item of the block before
    first = np.broadcast_to(np.arange(n_chains), (n, 1, n_chains))
    ids = np.concatenate([first, order + n_chains * np.arange(depth)[:, None]], axis=1)
    roots = [first[:, 0]]
    for block in range(depth):
        roots.append(np.take_along_axis(roots[-1], order[:, block], 1))
    return RetrievalProblem(ids.reshape(n, -1), np.concatenate(roots, axis=1), n_chains, depth)


@takes_model
def retrieval_problem_task(
    model: Model,
    *,
    n: int = 64,
    n_chains: int = 4,
    depth: int = 4,
    depths: Sequence[int] | None = None,
    measure: RetrievalMeasure = "loss",
    seed: int = 0,
) -> Task:
    """Measure the loss or the accuracy of a model's answers to the retrieval problem.

    The chance of the task is that of a guess among the roots: log(chains) nats, or 1 / chains.

    Args:
        model: a causal model whose tokens are positions, such as that of
            `training/forms/looped_program.py`.
        n: number of prompts.
        n_chains: items per block.
        depth: depth of the last block.
        depths: depths of the items whose answers count; by default that of the last block.
        measure: "loss" (nats per answer) or "accuracy" (share of answers).
        seed: seed of the links.

    Raises:
        OptionError: a number, a depth or the measure does not fit.
        PromptError: the model has too few tokens or positions.

    Reference: Musat 2025, arXiv 2411.12118.
    """
    problem = retrieval_problem(n, n_chains=n_chains, depth=depth, seed=seed)
    wanted = [depth] if depths is None else list(depths)
    if not wanted or not set(wanted) <= set(range(depth + 1)):
        raise OptionError(f"depths={wanted}: give one or more of 0 to depth={depth}")
    if measure not in ("loss", "accuracy"):
        raise OptionError(f"measure={measure!r}: give 'loss' or 'accuracy'")
    size = n_chains * (depth + 1)
    config = model.module.config
    tokens = getattr(config, "vocab_size", None)
    if model.kind != "causal" or tokens is None or tokens < size:
        raise PromptError(
            f"the retrieval problem of {n_chains} chains of depth {depth} needs a causal model "
            f"with at least {size} tokens, one per position; {model.name} is {model.kind} and has "
            f"{tokens}; give fewer chains or a smaller depth"
        )
    at = np.flatnonzero(np.isin(problem.depths, wanted))
    design = f"retrieval problem: {n_chains} chains of depth {depth}, seed {seed}"
    prompts = Prompts(tuple(tuple(map(int, row)) for row in problem.ids), design)
    of, chance = (loss, math.log(n_chains)) if measure == "loss" else (accuracy, 1 / n_chains)
    name = f"retrieval_problem_{measure}"
    task = of(model, prompts, [at.tolist()] * n, labels=problem.roots[:, at].tolist(), name=name)
    return replace(task, chance=chance)
