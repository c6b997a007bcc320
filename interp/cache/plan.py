"""Plan of a whole model's cache under a byte budget or a bound on the loss, with a held-out bound.

The prompts are divided at random into three parts. On the first, the loss of every cut is measured
head by head, and cuts are ordered by loss per byte saved, which gives a path of plans from the full
cache to the smallest. On the second, one plan of the path is chosen or its bound is computed. On
the third, the loss is reported.

The bound is conformal: with `n` calibration losses, the loss of one more prompt drawn like these is
at most the `ceil((n + 1) level)`-th smallest with probability `level` or more, whatever the
distribution (Vovk et al. 2005). For a given bound, plans are tried from the full cache on, and the
last is taken for which the number of calibration prompts whose largest loss so far exceeds the
bound, plus 1, is at most `(1 - level) (n + 1)`: conformal risk control for a monotone loss
(Angelopoulos et al. 2024), with the same guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from interp.cache.bytes import cache_bytes, own_reach, read_bytes_of, spelled, token_bytes
from interp.cache.cards import usual_prompts, window_sizes
from interp.cache.losses import CutLosses
from interp.cache.plan_result import CachePlan
from interp.cache.windows import KVHead, Window, kv_heads
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.protocols import Progress, silent
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

CutsOfHeads = Mapping[KVHead, Window]
CANDIDATES = 24  # plans of the path that are tried for a given bound


@takes_model
def cache_plan(
    model: Model,
    prompts: Any = None,
    *,
    budget: str | float | None = None,
    max_loss: float | None = None,
    length: int | None = None,
    sink: int = 4,
    recent: Sequence[int] | Literal["one"] | None = None,
    level: float = 0.95,
    scored: int | None = None,
    batch_size: int = 16,
    seed: int = 0,
    progress: Progress | None = None,
) -> CachePlan:
    """Choose which key-value heads keep everything and which a sink and a window.

    Args:
        model: a language model.
        prompts: texts, ids or `Prompts` drawn independently from the texts that the cache will
            hold; by default 96 of the held-out texts that come with the model, or without such
            texts 96 prompts of random tokens repeated twice.
        budget: bytes of the whole cache for one prompt of `length` tokens: a number, a text such as
            "64KiB", or a share of the full cache ("40%", 0.4). The plan with the smallest estimated
            loss within it.
        max_loss: bound on the increase of a new prompt's mean loss, in nats per token; the smallest
            cache that keeps it. Give either `budget` or `max_loss`.
        length: tokens for which bytes are counted; those of the longest prompt by default.
        sink: first tokens that a cut cache keeps.
        recent: numbers of last tokens that heads may keep; powers of two from 4 by default. "one"
            is the largest power of two up to a quarter of the longest prompt, so that all cut heads
            keep the same window, as DuoAttention's layout needs; a list of one number does too.
        level: probability with which the bound holds for a new prompt.
        scored: number of last tokens of each prompt that count in the loss; all by default.
        batch_size: prompts per forward pass.
        seed: seed of the default prompts and of their division into parts.
        progress: callback with the name of the step, the steps done and their total.

    Raises:
        OptionError: not exactly one of budget and max_loss; the budget is too small for the sinks
            and the smallest window; or an option is out of range.
        PromptError: too few prompts for the level, or all as short as the smallest window.

    Unit: tokens kept per head; nats per token for the loss.

    Cost: One forward pass of a third of the prompts per key-value head and window; a few more.

    Null: the loss of the full cache, 0.

    Not for: prompts of another kind or length than those given: the bound is for prompts drawn from
    the same source. Prompts that share a document are not independent; give one of each.

    Reference: this project; Vovk et al. 2005, "Algorithmic Learning in a Random World";
    Angelopoulos et al. 2024, "Conformal Risk Control".
    """
    if (budget is None) == (max_loss is None):
        raise OptionError("give exactly one of budget (bytes) and max_loss (nats per token)")
    if max_loss is not None and max_loss < 0:
        raise OptionError(f"max_loss={max_loss}: it must not be negative")
    if not 0 < level < 1:
        raise OptionError(f"level={level}: it must be between 0 and 1")
    tokenized = usual_prompts(model, 96, seed) if prompts is None else Prompts.of(prompts, model)
    parts = _divided(tokenized, level, seed)
    progress, heads = progress or silent, kv_heads(model)
    if recent == "one":
        every = window_sizes(None, sink, parts[0])
        recent = [max(r for r in every if r == every[0] or 4 * r <= max(map(len, tokenized.ids)))]
    sizes = window_sizes(recent, sink, parts[0])
    counted = max(map(len, tokenized.ids)) if length is None else length
    if counted < 1:
        raise OptionError(f"length={length}: give at least one token")
    reach, each = own_reach(model, tokenized), token_bytes(model)

    def bytes_of(head: KVHead, window: Window | None) -> int:
        sliding = reach.get((head.stack, head.layer))
        return cache_bytes(each[head], counted, window, sliding)

    full = sum(bytes_of(h, None) for h in heads)
    asked = None if budget is None else read_bytes_of(budget, full)
    least = sum(bytes_of(h, Window(sink, sizes[0])) for h in heads)
    if asked is not None and asked < least:
        raise OptionError(
            f"a budget of {asked:,} bytes ({spelled(asked)}) is too small: {len(heads)} key-value "
            f"heads with {sink} sink and {sizes[0]} recent tokens take {least:,} bytes; give at "
            "least that, a smaller sink, or smaller windows"
        )
    search, calibration, test = (CutLosses(model, p, scored, batch_size) for p in parts)
    windows = [Window(sink, recent) for recent in sizes]
    increases = search.each([{h: w} for h in heads for w in windows], "search", progress)
    rows = iter(increases.mean(1).tolist())
    alone = {head: {window: next(rows) for window in windows} for head in heads}
    path = plan_path(alone, bytes_of)
    totals = [sum(bytes_of(h, plan.get(h)) for h in heads) for plan in path]
    if asked is not None:
        at = next(i for i, total in enumerate(totals) if total <= asked)
        losses = calibration(path[at])
        bound = conformal_bound(losses, level)
    else:
        assert max_loss is not None
        bound = float(max_loss)
        at, losses = _largest_cut(path, totals, calibration, bound, level, progress)
    held_out = test(path[at])
    provenance = result_provenance(
        model,
        "interp.cache.cache_plan",
        tokenized,
        seed=seed,
        budget=None if budget is None else str(budget),
        max_loss=max_loss,
        sink=sink,
        recents=sizes,
        level=level,
        scored=scored,
        parts=[len(p) for p in parts],
    )
    chosen = path[at]
    return CachePlan(
        heads,
        tuple(chosen.get(h) for h in heads),
        tuple(bytes_of(h, chosen.get(h)) for h in heads),
        tuple(bytes_of(h, None) for h in heads),
        tuple(alone[h].get(chosen[h], 0.0) if h in chosen else 0.0 for h in heads),
        counted,
        bound,
        level,
        losses,
        held_out,
        provenance,
    )


def _divided(prompts: Prompts, level: float, seed: int) -> tuple[Prompts, Prompts, Prompts]:
    """Divide prompts at random into search, calibration and test parts of equal size."""
    needed = smallest_calibration(level)
    if len(prompts) < 3 * needed:
        raise PromptError(
            f"{len(prompts)} prompts are too few: a bound that holds with probability {level:g} "
            f"needs {needed} calibration prompts, a third of all; give at least {3 * needed}, or a "
            "lower level"
        )
    order = np.random.default_rng(seed).permutation(len(prompts)).tolist()
    size = len(prompts) // 3
    ends = (order[:size], order[size : 2 * size], order[2 * size :])
    one, two, three = map(prompts.part, ends)
    return one, two, three


def smallest_calibration(level: float) -> int:
    """Return the smallest number of losses from which a finite bound of this level follows."""
    return math.ceil(level / (1 - level) - 1e-9)


def conformal_bound(losses: Float[np.ndarray, " prompt"], level: float) -> float:
    """Return the number below which the loss of one more prompt is with probability `level`."""
    n = len(losses)
    place = math.ceil((n + 1) * level - 1e-9)
    if place > n:
        raise PromptError(
            f"{n} losses are too few for a bound of level {level:g}; it needs "
            f"{smallest_calibration(level)}"
        )
    return float(np.sort(losses)[place - 1])


def plan_path(alone: Mapping[KVHead, Mapping[Window, float]], bytes_of: Any) -> list[CutsOfHeads]:
    """Return nested plans from the full cache to the smallest, cheapest cuts per byte first."""
    moves: list[tuple[float, int, KVHead, Window]] = []
    for head, losses in alone.items():
        for order, (slope, window) in enumerate(_frontier(head, losses, bytes_of)):
            moves.append((slope, order, head, window))
    # slopes of a frontier ascend, so moves of one head stay in order
    moves.sort(key=lambda move: (move[0], move[1]))
    path: list[CutsOfHeads] = [{}]
    for _, _, head, window in moves:
        path.append({**path[-1], head: window})
    return path


def _frontier(
    head: KVHead, losses: Mapping[Window, float], bytes_of: Any
) -> list[tuple[float, Window]]:
    """Return the windows on the lower convex hull of loss over bytes, largest first, with slopes.

    A smaller window is never counted as better than a larger one of the same head.
    """
    points: list[tuple[int, float, Window | None]] = [(bytes_of(head, None), 0.0, None)]
    worst = 0.0
    for window in sorted(losses, key=lambda w: -w.tokens):
        worst = max(worst, losses[window])
        size = bytes_of(head, window)
        if size < points[-1][0]:
            points.append((size, worst, window))
    hull = points[:1]
    for point in points[1:]:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    pairs = pairwise(hull)
    return [(_slope(a, b), b[2]) for a, b in pairs if b[2] is not None]


def _slope(one: tuple[int, float, Any], other: tuple[int, float, Any]) -> float:
    """Return the loss per byte saved."""
    return (other[1] - one[1]) / (one[0] - other[0])


def _largest_cut(
    path: Sequence[CutsOfHeads],
    totals: Sequence[int],
    calibration: CutLosses,
    bound: float,
    level: float,
    progress: Progress,
) -> tuple[int, Float[np.ndarray, " prompt"]]:
    """Return the last plan of the path that conformal risk control accepts, and its losses."""
    wanted = np.linspace(totals[0], totals[-1], CANDIDATES)
    tried = sorted({next(i for i, t in enumerate(totals) if t <= w) for w in wanted})
    best, losses = 0, calibration(path[0])
    most = losses.copy()
    for done, at in enumerate(tried, 1):
        candidate = calibration(path[at])
        most = np.maximum(most, candidate)
        progress("calibration", done, len(tried))
        if (most > bound).sum() + 1 > (1 - level) * (len(most) + 1) + 1e-9:
            break
        best, losses = at, candidate
    return best, losses
