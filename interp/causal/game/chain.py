"""Values along permutations of players, where each run reuses the previous one.

Players are removed one by one, so neighbouring coalitions differ in one player. The layers below
that player's lowest head are equal in both runs and are restored from the previous one. This takes
about half the block runs of full forward passes, and gives the same numbers bit for bit if the game
itself does (`Game(fold=False, restrict=False)`). Only one batch's activations are stored besides
the clean run.

Many copies of a short prompt in one batch can be faster than this reuse, because a small batch does
not fill the processor; `walk="auto"` selects the faster one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.game.game import Game
from interp.causal.game.interface import RunEstimate
from interp.causal.game.pace import timed
from interp.causal.game.patching import rebuilt, tensors_in
from interp.causal.game.replay import CleanRun, pick, run
from interp.core.errors import NonFiniteError, UnknownName
from interp.core.interrupts import held
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread, inference

Walk = Literal["auto", "chain", "fold"]
WALKS = ("auto", "chain", "fold")
Order = Sequence[int] | np.ndarray


class Playable(Protocol):
    """Protocol of a game for estimators: its values, and its number of players."""

    def values(self, gates: Any) -> Tensor:
        """Return `[coalition, prompt]` from gates `[coalition, player]`."""
        ...

    def __len__(self) -> int: ...


def removals(n: int, order: Order, steps: int) -> Float[np.ndarray, "step player"]:
    """Return the gates after each of the first `steps` players of `order` is removed."""
    gates = np.ones((steps, n))
    for step, player in enumerate(order[:steps]):
        gates[step:, player] = 0
    return gates


def walks(
    game: Playable,
    orders: Sequence[Order],
    *,
    steps: int,
    walk: Walk = "auto",
    done: Callable[[int], None] | None = None,
) -> Float[Tensor, "order step prompt"]:
    """Compute the game's values while players are removed in each of the orders."""
    if walk not in WALKS:
        raise UnknownName("walk", walk, WALKS)
    n = len(game)
    if not (isinstance(game, Game) and (walk == "chain" or (walk == "auto" and chains(game)))):
        gates = np.concatenate([removals(n, order, steps) for order in orders])
        values = {} if done is None else {"progress": lambda what, k, total: done(k)}
        if not isinstance(game, Game):
            values = {}
        path_values = torch.as_tensor(game.values(torch.as_tensor(gates), **values))
        return path_values.reshape(len(orders), steps, -1)
    parts = []
    for i, order in enumerate(orders):
        told_step = None if done is None else lambda k, i=i: done(i * steps + k)
        parts.append(_remembered(game, order, steps, told_step))
    return torch.stack(parts)


def chains(game: Game) -> bool:
    """Return True if reusing the previous run should be faster than sharing batches.

    A pass has a fixed cost equal to that of about 50 tokens (reading the weights and, in a narrow
    model, Python); the figures are measured on a CPU and are a guess for other devices.
    """
    if not game.reuse.blocks:
        return False
    depth = chain_depth(game)
    tokens = max(batch.tokens for batch in game.batches)
    copies = max(1, game.max_tokens // tokens) if game.reuse.fold else 1
    fixed = 50 + 1.7e6 / game.model.d_model**2 if game.model.device.type == "cpu" else 2000
    return (fixed + tokens) * depth < fixed / copies + tokens


def chain_depth(game: Game) -> float:
    """Return the mean share of blocks that run, over a chain of all players."""
    first = _first_sites(game)
    return sum(game.reuse.depth(site) for site in first) / len(first)


def estimate_walks(game: Game, orders: Sequence[Order], steps: int, walk: Walk) -> RunEstimate:
    """Estimate the cost of `walks` along these orders, timing the steps of one chain."""
    tables = [removals(len(game), order, steps) for order in orders]
    if not (walk == "chain" or (walk == "auto" and chains(game))):
        return game.estimate(np.concatenate(tables))
    if game.ledger is not None:
        find = game.ledger.find
        tables = [gates for gates in tables if not bool(find(torch.as_tensor(gates))[0].all())]
    if game.step_seconds is None and tables:
        game.step_seconds = _step_seconds(game)
    count, share = steps * len(tables), chain_depth(game)
    return RunEstimate(
        count, count * (game.step_seconds or 0.0), game.kept_bytes, share, game.notes
    )


def _step_seconds(game: Game, steps: int = 6) -> float:
    """Measure the seconds per step of a short chain of players of all depths."""
    order = {site: i for i, site in enumerate(game.model.whole_sites)}
    first = _first_sites(game)
    by_depth = sorted(range(len(game)), key=lambda player: order[first[player]])
    steps = min(steps, len(game))
    chosen = [by_depth[(2 * i + 1) * len(game) // (2 * steps)] for i in range(steps)]
    gates = torch.as_tensor(removals(len(game), chosen, steps))
    return timed(lambda: _chain(game, chosen, gates, None)) / steps


def _first_sites(game: Game) -> list[Site]:
    """Return, for each player, the first attention in running order with one of its heads."""
    order = {site: i for i, site in enumerate(game.model.whole_sites)}
    first: dict[int, Site] = {}
    for site in sorted(game.players.member, key=order.__getitem__):
        for player in game.players.member[site].tolist():
            first.setdefault(player, site)
    return [first[player] for player in range(len(game))]


def _remembered(
    game: Game, order: Order, steps: int, done: Callable[[int], None] | None
) -> Float[Tensor, "step prompt"]:
    """Return a chain's values from the ledger if complete, otherwise run and store them."""
    gates = torch.as_tensor(removals(len(game), order, steps))
    ledger = getattr(game, "ledger", None)
    if ledger is not None:
        known, values = ledger.find(gates)
        if bool(known.all()):
            if done is not None:
                done(steps)
            return values
    values = _chain(game, order, gates, done)
    if ledger is not None:
        ledger.add(gates, values)
    return values


@torch.no_grad()
def _chain(
    game: Game,
    order: Order,
    gates: Float[Tensor, "step player"],
    done: Callable[[int], None] | None,
) -> Float[Tensor, "step prompt"]:
    path_values = torch.empty(len(gates), len(game.task), dtype=torch.double)
    firsts = _first_sites(game)
    table = gates.to(game.model.device)
    for number, batch in enumerate(game.batches):
        clean = game.clean_run(number)
        last = CleanRun(
            clean.inputs,
            clean.batch,
            clean.logits,
            clean.seconds,
            dict(clean.outputs),
            dict(clean.attention),
            dict(clean.z),
            dict(clean.live),
        )
        with inference(game.model.module):
            for step in range(len(gates)):
                raw = _next(game, number, last, firsts[int(order[step])], table[step : step + 1])
                logits = pick(raw, batch.wanted, game.reuse)
                path_values[step, list(batch.which)] = game.value_of(batch, logits).cpu()
                if done is not None:
                    done((number * len(gates) + step + 1) // len(game.batches))
        game.trim(number)
    bad = (~torch.isfinite(path_values)).nonzero()
    if len(bad):
        step, prompt = bad[0].tolist()
        raise NonFiniteError(
            f"{game.model.name}: {game.task.name} is {float(path_values[step, prompt])} on prompt "
            f"{prompt} with {step + 1} players removed; the activations or the task's function "
            f"overflow; try float32 or another task"
        )
    return path_values


@held()
def _next(game: Game, number: int, last: CleanRun, first: Site, gates: Tensor) -> Tensor:
    """Run from `first` on, restoring earlier layers from `last`, and update `last`."""
    reuse, batch = game.reuse, game.batches[number]
    place = {site: i for i, site in enumerate(game.model.whole_sites)}
    block = reuse.block_of[first]

    def keep_block(name: str) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            # clones, because the next block may modify its input in place
            new = rebuilt(output, iter([x.clone() for x in tensors_in(output)]))
            last.outputs[name] = _completed(new, last.outputs[name])

        return hook

    def keep_rest(site: Site) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            shape, *rest = tensors_in(output)
            kept = [torch.empty_like(shape, device="meta"), *(x.clone() for x in rest)]
            last.attention[site] = rebuilt(output, iter(kept))

        return hook

    def visit(site: Site, call: Call, real: Tensor) -> None:
        # before any gate: visitors of outer blocks run first
        if site in reuse.attention and place[site] > place[first]:
            last.z[site] = call.z.transpose(1, 2).contiguous().transpose(1, 2)
            if batch.replacement.live is not None:
                last.live[site] = batch.replacement.live(call)

    module_of = game.model.module.get_submodule
    with ExitStack() as stack:
        for name in reuse.blocks[block:-1]:  # nothing is restored after the last attention
            stack.callback(
                module_of(name).register_forward_hook(in_this_thread(keep_block(name))).remove
            )
        for site in reuse.attention if reuse.keep_rest else ():
            if place[site] > place[first]:
                hook = module_of(site.module).register_forward_hook(in_this_thread(keep_rest(site)))
                stack.callback(hook.remove)
        if place[first] + 1 < len(place):
            stack.enter_context(game.model.visited(visit))
        return run(
            game.model,
            batch.inputs,
            game.gates_of(gates),
            batch.replacement,
            first=first,
            clean=last,
            reuse=reuse,
            wanted=batch.wanted,
        )


def _completed(new: Any, old: Any) -> Any:
    """Return `new`, with tensors that a replayed attention omits taken from `old`."""
    if new is None:
        return old
    if isinstance(new, (tuple, list)):
        parts = [_completed(x, y) for x, y in zip(new, old, strict=True)]
        return type(new)(*parts) if hasattr(new, "_fields") else type(new)(parts)
    if isinstance(new, Mapping):
        named = {name: _completed(x, old[name]) for name, x in new.items()}
        return named if type(new) is dict else type(new)(**named)
    return new
