"""Matching of the heads of two models by an optimal assignment, with nulls and stability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core import clusters as grouped
from interp.core.errors import OptionError
from interp.core.protocols import silent
from interp.core.statistics import redraw_counts
from interp.heads.between_models.matches import HeadMatches
from interp.heads.between_models.similarity import Group, similarities
from interp.model.content import model_provenance, versions
from interp.model.model_argument import given_models

if TYPE_CHECKING:
    from interp.core.protocols import Progress

SPLITS, DRAWS = 999, 500


def match_heads(
    a: Any,
    b: Any,
    prompts: Any = None,
    *,
    method: str = "patterns",
    within: str = "layer",
    n_random: int = SPLITS,
    n_boot: int = DRAWS,
    seed: int = 0,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> HeadMatches:
    """Match the heads of two models whose head order differs, such as runs with two seeds.

    Every head of A receives one head of B, so that the sum of the similarities is largest (an
    optimal assignment); with different numbers of heads some remain without a match. That a match
    exists says nothing, since every assignment finds one. Three figures say how much it means:

    - `p` of a head: the probability that a head has as similar a neighbour among the other heads of
      its own model, from all heads of both models, corrected for the number of candidates. A head
      that several heads of its model resemble as much cannot be identified, and has a large p.
    - `p_all`, of the assignment: the heads of both models are pooled and split at random into two
      groups of the same sizes, which are matched in the same way. If no head of A corresponds to
      one of B, the models are such a split. `null` is the mean similarity of these matches.
    - `stability` of a head: the share of bootstrap draws of the prompts (or tokens) in which the
      assignment gives the same head.

    Args:
        a: a model, or anything that `interp.load` accepts.
        b: the other model.
        prompts: as in `interp.score`, read by both models as the same tokens; for "patterns".
        method: "patterns" compares attention on these prompts; "ov" and "qk" compare circuits
            between tokens of the vocabulary, which is the same in both models where their residual
            streams have no common basis. See `interp.heads.between_models.similarity`.
        within: "layer" matches heads of the same layer, "model" heads of all layers.
        n_random: number of random splits; 0 for none.
        n_boot: number of bootstrap draws; 0 for none.
        seed: seed of default prompts or tokens, splits and draws.
        batch_size: prompts per forward pass, which does not affect the numbers; for "patterns".
        progress: see `Progress`.

    Raises:
        OptionError: the layers of the models do not correspond, or a number is negative.
        PromptError: the models do not read the same tokens.
        UnreadableAttention: circuits are asked for, but they are not fixed matrices.
    """
    if batch_size < 1:
        raise OptionError(f"batch_size={batch_size} must be at least 1")
    if n_random < 0 or n_boot < 0:
        raise OptionError(f"n_random={n_random} and n_boot={n_boot} must be 0 or more")
    progress = progress or silent
    first, second = (given_models(x)[0].model() for x in (a, b))
    progress("similarity of heads", 0, 1)
    similarity = similarities(first, second, method, within, prompts, seed, batch_size)
    progress("similarity of heads", 1, 1)
    rng = np.random.default_rng(seed)
    neighbours = np.concatenate([_neighbours(g) for g in similarity.groups.values()])
    rows, values = [], []
    total, null_total = 0.0, np.zeros(n_random)
    for group in similarity.groups.values():
        mean = group.across.mean(0)
        pairs = assigned(mean)
        total += sum(mean[i, j] for i, j in pairs.items())
        drawn = _split_totals(group, n_random, rng)
        null_total += drawn
        stable = _stability(group, pairs, similarity.clusters, n_boot, rng)
        null = float(drawn.mean()) / max(len(pairs), 1) if n_random else float("nan")
        p_of = _p_values(group, mean, pairs, neighbours)
        for i, (stack, head) in enumerate(group.a):
            row: dict[str, Any] = {"stack": stack, "layer": head.layer, "head": head.head}
            row |= {"head_b": "", "next": float("nan"), "null": null}
            row |= {"stability": float("nan"), "p": float("nan")}
            if i in pairs:
                j = pairs[i]
                others = np.delete(mean[i], j)
                row |= {"head_b": str(group.b[j][1]), "stability": stable[i], "p": p_of[i]}
                row["next"] = float(others.max()) if len(others) else float("nan")
            rows.append(row)
            nothing = np.full(len(group.across), np.nan)
            values.append(group.across[:, i, pairs[i]] if i in pairs else nothing)
    p_all = float((1 + (null_total >= total - 1e-9).sum()) / (n_random + 1)) if n_random else None
    taken = {(row["stack"], row["head_b"]) for row in rows}
    provenance = {
        "model": f"{first.name} to {second.name}",
        "a": model_provenance(first),
        "b": model_provenance(second),
        "by": method,
        "within": within,
        "p_all": p_all,
        "n_random": n_random,
        "n_boot": n_boot,
        "seed": seed,
        "versions": versions(),
        "unmatched_b": [
            f"{stack} {h}"
            for g in similarity.groups.values()
            for stack, h in g.b
            if (stack, str(h)) not in taken
        ],
        "made_by": "interp.heads.match_heads",
    } | dict(similarity.about)
    matrix = {
        f"{stack} {layer}" if layer >= 0 else stack: g.across.mean(0)
        for (stack, layer), g in similarity.groups.items()
    }
    return HeadMatches(
        tuple(rows),
        np.stack(values),
        similarity.clusters,
        f"{method} similarity",
        similarity.unit,
        matrix,
        provenance,
    )


def assigned(similarity: Float[np.ndarray, "a b"]) -> dict[int, int]:
    """Return the assignment of rows to columns with the largest sum of similarities."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(similarity, maximize=True)
    return dict(zip(rows.tolist(), columns.tolist(), strict=True))


def _neighbours(group: Group) -> np.ndarray:
    """Return each head's largest similarity with another head of its own model."""
    largest = []
    for within in (group.own_a, group.own_b):
        if len(within) > 1:
            apart = within - np.diag(np.full(len(within), np.inf))
            largest.append(apart.max(1))
    return np.concatenate(largest) if largest else np.zeros(0)


def _p_values(
    group: Group, mean: np.ndarray, pairs: dict[int, int], neighbours: np.ndarray
) -> dict[int, float]:
    """Return p of each match against the nearest neighbours inside the models.

    A neighbour is the best of one candidate fewer than a match, or of several fewer where the
    second model is larger: 1 - (1 - p)^(candidates / candidates of a neighbour) corrects for it.
    """
    if not len(neighbours):
        return dict.fromkeys(pairs, float("nan"))
    rivals = np.mean([max(len(x) - 1, 1) for x in (group.own_a, group.own_b)])
    power = max(mean.shape[1] / rivals, 1.0)
    out = {}
    for i, j in pairs.items():
        # similarities that differ only by rounding count as equal
        plain = (1 + (neighbours >= mean[i, j] - 1e-9).sum()) / (len(neighbours) + 1)
        out[i] = float(1 - (1 - min(plain, 1.0)) ** power)
    return out


def _split_totals(group: Group, n: int, rng: np.random.Generator) -> Float[np.ndarray, " split"]:
    """Return the sum of matched similarities of random splits of the pooled heads."""
    mean = group.across.mean(0)
    pool = np.block([[group.own_a, mean], [mean.T, group.own_b]])
    size, total = len(group.a), np.zeros(n)
    for at in range(n):
        order = rng.permutation(len(pool))
        part = pool[np.ix_(order[:size], order[size:])]
        total[at] = sum(part[i, j] for i, j in assigned(part).items())
    return total


def _stability(
    group: Group,
    pairs: dict[int, int],
    labels: tuple[str, ...] | None,
    n: int,
    rng: np.random.Generator,
) -> dict[int, float]:
    """Return the share of bootstrap draws of units in which each head keeps its match."""
    units = len(group.across)
    number = grouped.cluster_count(units, labels)
    if n == 0 or number < 2:
        return dict.fromkeys(pairs, float("nan"))
    times = redraw_counts(number, n, rng)
    weights = grouped.draw_weights(times, grouped.numbered(units, labels))
    counts = dict.fromkeys(pairs, 0)
    for weight in weights:
        drawn = assigned(np.tensordot(weight, group.across, 1))
        for i, j in pairs.items():
            counts[i] += drawn.get(i) == j
    return {i: count / n for i, count in counts.items()}
