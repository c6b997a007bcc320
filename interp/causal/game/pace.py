"""Time per coalition of a game, estimated from a few timed runs.

A pass over many copies of a short prompt takes far less than as many single passes; the ratio
depends on the model and the machine. So passes with one copy and with the largest number of copies
are timed, from the lowest and from the highest block, and interpolated linearly.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from interp.causal.game.interface import PlayedGame, RunEstimate
from interp.causal.game.packing import Pack
from interp.model.hooks.inference import inference

if TYPE_CHECKING:
    from interp.model.calls.sites import Site

_LONG = 0.5  # seconds; a run that takes this long is timed once
_FEW = 2  # passes; timing some of fewer would take as long as running them


def timed(run: Callable[[], Any]) -> float:
    """Measure the seconds of a second run, as the first also allocates memory.

    The number of runs must not depend on how busy the machine is, but where a run takes long.
    """
    for _ in range(2):
        start = time.perf_counter()
        run()
        spent = time.perf_counter() - start
        if spent >= _LONG:
            break
    return spent


@dataclass(frozen=True)
class Pace:
    """Seconds per pass, by its tokens and by the share of blocks that run.

    Args:
        tokens: tokens of the two passes that were timed from each block.
        shares: shares of the blocks that ran, the largest first.
        seconds: measured seconds by share, then by tokens.
    """

    tokens: tuple[int, int]
    shares: tuple[float, float]
    seconds: tuple[tuple[float, float], tuple[float, float]]

    def of(self, tokens: int, share: float) -> float:
        """Return the seconds of one pass; 0 if no block runs."""
        if share == 0:
            return 0.0
        most, least = (self._at(seconds, tokens) for seconds in self.seconds)
        high, low = self.shares
        if high == low:
            return most * share / high
        return max(0.0, least + (most - least) * (share - low) / (high - low))

    def _at(self, seconds: tuple[float, float], tokens: int) -> float:
        (few, many), (first, last) = self.tokens, seconds
        if few == many:
            return first * tokens / few
        return max(0.0, first + (last - first) * (tokens - few) / (many - few))


def measure(game: PlayedGame, most: int) -> Pace:
    """Measure the pace of a game on its largest batch, with one and with `most` coalitions.

    If one pass takes long, only passes from the lowest block are timed, since the cost outside the
    blocks is then negligible.
    """
    number = max(range(len(game.batches)), key=lambda i: game.batches[i].tokens)
    tokens = game.batches[number].tokens
    depth = {site: game.reuse.depth(site) for site in game.players.member}
    low, high = max(depth, key=depth.__getitem__), min(depth, key=depth.__getitem__)

    def seconds(site: Site) -> tuple[float, float]:
        one = timed(lambda: passed(site, 1))
        return one, one if most == 1 else timed(lambda: passed(site, most))

    def passed(site: Site, copies: int) -> None:
        table = torch.ones(copies, len(game), dtype=torch.double, device=game.model.device)
        table[:, game.players.member[site].max()] = 0.5
        with inference(game.model.module):
            game.evaluate(number, Pack(tuple(range(copies)), site), table)

    from_low = seconds(low)
    if depth[low] == depth[high] or from_low[-1] >= _LONG:
        high, from_high = low, from_low
    else:
        from_high = seconds(high)
    return Pace((tokens, tokens * most), (depth[low], depth[high]), (from_low, from_high))


def estimated(game: PlayedGame, gates: Any) -> RunEstimate:
    """Estimate the cost of gates; see `Game.estimate`."""
    order = {site: i for i, site in enumerate(game.model.whole_sites)}
    if isinstance(gates, int):
        table = torch.ones(gates, len(game), dtype=torch.double)
        first = min(game.players.member, key=order.__getitem__)
        table[:, int(game.players.member[first].max())] = 0
    else:
        table = game.checked(gates)
    whole = len(table)
    if game.ledger is not None:
        table = table[~game.ledger.find(table)[0]]
    runs, peak = 0.0, 0
    passes: list[tuple[int, int, float]] = []  # batch, coalitions, share of the blocks
    for number, packs in enumerate(game.packs(table)):
        logits = game.clean_run(number).logits
        size = logits.element_size()
        for pack in packs:
            share = 0.0 if pack.first is None else game.reuse.depth(pack.first)
            runs += share * len(pack.rows)
            passes.append((number, len(pack.rows), share))
            rows = logits.numel() * size * len(pack.rows)
            widest = len(pack.rows) * game.batches[number].tokens * game.model.d_model
            peak = max(peak, 3 * rows + 16 * widest * size)
        game.trim(number)
    done = whole - len(table)
    notes = (f"{done} more are finished",) if done else ()
    share = runs / max(1, len(table) * len(game.batches))
    return RunEstimate(
        len(table), _seconds(game, passes), peak + game.kept_bytes, share, notes + game.notes
    )


def _seconds(game: PlayedGame, passes: list[tuple[int, int, float]]) -> float:
    """Estimate the seconds of passes given by batch, coalitions and share of blocks."""
    if game.pace is None and len(passes) > _FEW:
        game.pace = measure(game, max(n for _, n, _ in passes))
    if game.pace is None:
        return sum(share * n * game.seconds[number] for number, n, share in passes)
    of = game.pace.of
    return sum(of(n * game.batches[number].tokens, share) for number, n, share in passes)
