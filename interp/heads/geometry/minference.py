"""Margins of the three sparse patterns of MInference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.core.declaration import like
from interp.core.errors import OptionError
from interp.heads.declaration import measurement

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Float
    from torch import Tensor

    from interp.core.table import HeadTable
    from interp.heads.layer import LayerCall


@measurement(
    unit="attention mass",
    low=-1.0,
    high=1.0,
    requires=("qk", "self", "causal"),
    chance="below 0 for at least two of the three patterns",
    end="high",
)
def minference_a_shape(layer, *, keys: int = 4):
    """Attention kept by first and nearest keys, minus the better of the other two patterns.

    A-shape keeps half of the budget at the start of the prompt and half next to the query. Above 0
    it is the kind of the head: see `interp.heads.minference_kinds`. Averaged over queries that see
    more keys than the budget, without the last.

    Not for: prompts with hardly more tokens than keys, which have no score. MInference compares at
    a budget of thousands of keys, over queries from 2500 on, and its code rewrites some winners as
    vertical-slash.

    Options:
        keys: budget of keys per query, at least 4.

    Reference: Jiang et al. 2024, "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs
    via Dynamic Sparse Attention" (arXiv 2407.02490).
    """
    return kind_margin(layer, "a_shape", keys)


@like(minference_a_shape)
def minference_block_sparse(layer, *, keys: int = 4):
    """Attention kept by chosen blocks of keys, minus the better of the other two patterns.

    For each block of queries, the four blocks of keys with the largest products of mean queries and
    mean keys; blocks have a quarter of the budget. Above 0 it is the kind of the head: see
    `interp.heads.minference_kinds`. Averaged over queries that see more keys than the budget,
    without the last.
    """
    return kind_margin(layer, "block_sparse", keys)


@like(minference_a_shape)
def minference_vertical_slash(layer, *, keys: int = 4):
    """Attention kept by chosen columns and diagonals, minus the better of the other two patterns.

    Half of the budget are the keys with the largest sums over the last queries, half the
    distances. Above 0 it is the kind of the head: see `interp.heads.minference_kinds`. Averaged
    over queries that see more keys than the budget, without those last.
    """
    return kind_margin(layer, "vertical_slash", keys)


KINDS = ("a_shape", "vertical_slash", "block_sparse")
LAST = 8  # last queries, from which columns and diagonals are chosen and which are not judged
PARTS = 4  # a quarter of the budget is the width of a block


def kind_margin(layer: LayerCall, kind: str, keys: int) -> Float[Tensor, "prompt head"]:
    """Return how much more attention a pattern keeps than the better of the other two."""
    import torch

    masses = kept_masses(layer, keys)
    others = torch.stack([masses[other] for other in KINDS if other != kind])
    return masses[kind] - others.amax(0)


def kept_masses(layer: LayerCall, keys: int) -> dict[str, Float[Tensor, "prompt head"]]:
    """Return the attention that each pattern keeps, averaged over queries that see more keys.

    NaN where no query before the last ones sees more keys than the budget.
    """
    import torch

    from interp.heads.geometry.vertical_slash import vertical_slash_mass
    from interp.heads.layer import mean_of_rows

    if keys < PARTS:
        raise OptionError(f"keys={keys} is too small; give at least {PARTS}")
    last = max(1, min(LAST, layer.tokens // 4))
    at = torch.arange(layer.tokens, device=layer.call.z.device)
    counts = (layer.sees > keys) & (at < layer.tokens - last)
    rows = {
        "a_shape": _a_shape(layer, keys),
        "vertical_slash": vertical_slash_mass(layer, keys // 2, keys - keys // 2, last),
        "block_sparse": _block_sparse(layer, keys),
    }
    return {kind: mean_of_rows(x.clamp(max=1.0), counts) for kind, x in rows.items()}


def _a_shape(layer: LayerCall, keys: int) -> Float[Tensor, "prompt head row"]:
    import torch

    key = torch.arange(layer.call.v.shape[2], device=layer.call.z.device)
    masses = []
    for rows, pattern, _ in layer.blocks():
        query = torch.arange(rows.start, rows.stop, device=key.device)[:, None]
        near = (query - key >= 0) & (query - key < keys - keys // 2)
        masses.append((pattern * (near | (key < keys // 2))).sum(-1))
    return torch.cat(masses, -1)


def _block_sparse(layer: LayerCall, keys: int) -> Float[Tensor, "prompt head row"]:
    """Keep the blocks of keys with the largest products of mean queries and mean keys."""
    import torch

    size = keys // PARTS
    pooled_q, pooled_k = _pooled(layer.q, size), _pooled(layer.k, size)
    scores = pooled_q @ pooled_k.transpose(-1, -2)
    down, across = scores.shape[-2:]
    ahead = torch.ones(down, across, dtype=torch.bool, device=scores.device).triu(1)
    scores = scores.masked_fill(ahead, -torch.inf)
    best = scores.topk(min(PARTS, across), dim=-1).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True) & ~ahead
    column = torch.arange(layer.call.v.shape[2], device=scores.device) // size
    masses = []
    for rows, pattern, _ in layer.blocks():
        row = torch.arange(rows.start, rows.stop, device=scores.device) // size
        masses.append((pattern * chosen[..., row, :][..., column]).sum(-1))
    return torch.cat(masses, -1)


def _pooled(x: Float[Tensor, "prompt head token d"], size: int) -> Tensor:
    """Return the mean of each block of tokens; the last block may be shorter."""
    import torch

    return torch.stack([part.mean(2) for part in x.split(size, 2)], 2)


PREFIX = "minference_"


def minference_kinds(table: HeadTable, tolerance: float = 0.01) -> pd.DataFrame:
    """Return the pattern that keeps most of each head's attention, with its margin.

    Columns and diagonals can do what an A-shape does, at the price of estimating them at run time:
    a head whose A-shape keeps as much as the best pattern, up to the tolerance, is an A-shape.

    Args:
        table: scores of `minference_a_shape`, `minference_vertical_slash` and
            `minference_block_sparse` with the same options, from `interp.score`.
        tolerance: attention mass by which the A-shape may be behind.

    Returns:
        One row per head: model, stack, layer, head, kind, margin in attention mass over the better
        of the other two patterns, low and high of its 95 % interval, n prompts, and clear: True if
        the interval lies above 0 (of an A-shape, above minus the tolerance). A
        head without a score has kind "".

    Raises:
        OptionError: one of the three scores is missing.
    """
    import numpy as np
    import pandas as pd

    frame: Any = table.interval()
    of = frame["metric"].str.partition(":")[0]
    names = [PREFIX + kind for kind in ("a_shape", "vertical_slash", "block_sparse")]
    missing = [name for name in names if name not in set(of)]
    if missing:
        raise OptionError(
            f"the table has no {', '.join(missing)}; score all three: {', '.join(names)}"
        )
    where = [c for c in ("model", "stack", "layer", "head") if c in frame]
    rows = []
    for place, part in frame[of.isin(names)].groupby(where, sort=False):
        scores = part["score"].to_numpy(dtype=float)
        if np.isnan(scores).all():
            best, kind = part.iloc[0], ""
        else:
            kinds = [str(m).partition(":")[0].removeprefix(PREFIX) for m in part["metric"]]
            simple = kinds.index("a_shape")
            at = simple if scores[simple] >= -tolerance else int(np.nanargmax(scores))
            best, kind = part.iloc[at], kinds[at]
        row = dict(zip(where, place, strict=True)) | {"kind": kind, "margin": best["score"]}
        row |= {"low": best["low"], "high": best["high"], "n": best["n"]}
        least = -tolerance if kind == "a_shape" else 0.0
        rows.append(row | {"clear": bool(best["low"] > least)})
    return pd.DataFrame(rows)
