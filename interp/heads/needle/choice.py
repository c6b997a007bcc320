"""Choice of heads by score, and its stability across needles and lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.rank_statistics import spearman, top_k
from interp.core.statistics import percentile_interval, redraw_counts

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.table import HeadTable
    from interp.heads.needle.copying import CopyPaste

ScoresByHead = Mapping[tuple[int, int], float]


def select(
    scores: ScoresByHead | HeadTable, *, least: float | None = None, share: float | None = None
) -> list[Head]:
    """Select heads by value or by a share of all heads, best first."""
    if (least is None) == (share is None):
        raise OptionError(
            "give exactly one criterion: least=a minimum score, or share=a share of all heads"
        )
    if share is not None and not 0 < share <= 1:
        raise OptionError(f"share={share}: it must be above 0 and at most 1")
    pairs = _pairs(scores)
    order = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    if share is not None:
        chosen = order[: max(1, round(share * len(order)))]
    else:
        chosen = [pair for pair in order if pair[1] >= least]  # type: ignore[operator]
    return [Head(*head) for head, _ in chosen]


def _pairs(scores: ScoresByHead | HeadTable) -> list[tuple[tuple[int, int], float]]:
    if isinstance(scores, Mapping):
        return [((int(a), int(b)), float(x)) for (a, b), x in scores.items()]
    rows = scores.to_pandas()
    if rows.groupby(["metric", "stack", "model"], observed=True).ngroups > 1:
        raise OptionError(
            "the table holds several metrics, stacks or models; select one with .where(...)"
        )
    return [((int(r.layer), int(r.head)), float(r.score)) for r in rows.itertuples()]  # type: ignore[arg-type]


def selection_stability(
    found: CopyPaste, *, least: float = 0.1, top: int = 20, n_boot: int = 500, seed: int = 0
) -> pd.DataFrame:
    """Measure how stable the choice of heads is across parts of the instances.

    The parts are: one needle, one length, all.

    One row per part: instances `n`; `heads` that score `least`; `overlap`, the share of the
    `top` heads that the other instances select too (of the heads above zero, where fewer than `top`
    are); `spearman`, the rank correlation of all heads with their scores in the other instances;
    for `all` both come from random halves. Each with a 95 % interval by resampling the part's
    instances (`_low`, `_high`).

    Raises:
        PromptError: there are fewer than two instances.
        OptionError: `top` or `n_boot` below 1.

    Unit: overlap of heads, rank correlation.

    Cost: none beyond the scores.

    Null: random halves of the instances.

    Not for: a single needle: variation between needles cannot be seen.

    Reference: this project.
    """
    import pandas as pd

    if top < 1 or n_boot < 1:
        raise OptionError(f"top={top}, n_boot={n_boot}: both must be at least 1")
    x = np.concatenate([v.numpy() for v in found.values.values()], 1)
    if len(x) < 2:
        raise PromptError(
            f"{len(x)} instance: stability needs at least two; add needles or lengths"
        )
    rng = np.random.default_rng(seed)
    rows = []
    for part, inside in _parts(found).items():
        if inside.all() and part != "all":
            continue  # there is only one needle, or one length
        mine = x[inside]
        drawn = _resampled(mine, n_boot, rng)
        counts = (drawn >= least).sum(1)
        if part == "all":
            overlap, rank = _halves(x, top, n_boot, rng)
            middle = overlap.mean(), rank.mean()
        else:
            rest = x[~inside].mean(0)
            overlap = np.array([_overlap(d, rest, top) for d in drawn])
            rank = np.array([_correlation(d, rest) for d in drawn])
            middle = _overlap(mine.mean(0), rest, top), _correlation(mine.mean(0), rest)
        row = {"part": part, "n": int(inside.sum())}
        for name, value, each in (
            ("heads", int((mine.mean(0) >= least).sum()), counts),
            ("overlap", middle[0], overlap),
            ("spearman", middle[1], rank),
        ):
            low, high = percentile_interval(each)
            row |= {name: value, f"{name}_low": float(low), f"{name}_high": float(high)}
        rows.append(row)
    return pd.DataFrame(rows)


def _parts(found: CopyPaste) -> dict[str, Bool[np.ndarray, " trial"]]:
    parts = {"all": np.ones(len(found.instances), bool)}
    for name in ("needle", "length"):
        each = np.array([getattr(x, name) for x in found.instances])
        parts |= {f"{name} {value}": each == value for value in np.unique(each).tolist()}
    return parts


def _resampled(
    x: Float[np.ndarray, "trial head"], draws: int, rng: np.random.Generator
) -> Float[np.ndarray, "draw head"]:
    """Return means over instances drawn with replacement."""
    return redraw_counts(len(x), draws, rng) / len(x) @ x


def _halves(
    x: Float[np.ndarray, "trial head"], top: int, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    pairs = []
    for _ in range(draws):
        order = rng.permutation(len(x))
        one, other = x[order[: len(x) // 2]].mean(0), x[order[len(x) // 2 :]].mean(0)
        pairs.append((_overlap(one, other, top), _correlation(one, other)))
    overlap, rank = np.array(pairs).T
    return overlap, rank


def _overlap(one: np.ndarray, other: np.ndarray, top: int) -> float:
    """Return the share of the best heads that two scores have in common; 0 if one has none."""
    k = min(top, int((one > 0).sum()), int((other > 0).sum()))
    if k == 0:
        return 0.0
    return len(top_k(one, k) & top_k(other, k)) / k


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return the rank correlation; 0 if all heads of one score are equal."""
    return float(np.nan_to_num(spearman(np.stack([one, other]))[0, 1]))
