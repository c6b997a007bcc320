"""Derivatives of a game by the gate of every head, and the scores computed from them.

A gate scales a head's z between its replacement (0) and itself (1); the derivative with respect to
one gate at one token is (z - replacement)·dv/dz. The weights are frozen, so only activations are
stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.causal.game.batches import GameBatch
from interp.causal.game.game import Game
from interp.causal.game.replacement import gated
from interp.causal.game.replay import Reuse, pick, run
from interp.core.errors import NonFiniteError, OptionError
from interp.core.interrupts import holding
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.inference import Flag, inference


def token_gradients(
    game: Game, batch: GameBatch, level: float | Mapping[Site, Float[Tensor, "1 head"]] = 1.0
) -> dict[Site, tuple[Float[Tensor, "prompt head token"], Tensor]]:
    """Compute the derivative of each prompt's value by every head's gate at every token."""
    leaf: dict[Site, Tensor] = {}
    real_at: dict[Site, Tensor] = {}
    base = game.always_out
    playing = {site: index >= 0 for site, index in game.players.member.items()}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        z = call.z
        if site not in playing:
            if site in base:
                call.z = gated(z, base[site].expand(z.shape[0], -1), _other(site, call))
            return
        value = level[site] if isinstance(level, Mapping) else torch.tensor(level)[None, None]
        gate = value.to(z)[..., None].expand(z.shape[:3]).clone().requires_grad_()
        leaf[site], real_at[site] = gate, real
        free = playing[site].to(z.device)[None, :, None]
        gate = torch.where(free, gate, torch.ones_like(gate))
        if site in base:
            gate = gate * base[site].to(z)[..., None]
        call.z = gated(z, gate, _other(site, call))

    def _other(site: Site, call: Call) -> Tensor | None:
        return batch.replacement.at(site, call.z, call)

    reuse = Reuse(unembedding=game.reuse.unembedding, columns=game.reuse.columns)
    module = game.model.module
    with torch.enable_grad(), frozen(module), inference(module):
        with game.model.visited(visit):
            raw = run(
                game.model, batch.inputs, {}, batch.replacement, reuse=reuse, wanted=batch.wanted
            )
        # outside the hooks, because a task may need the clean run
        value = game.value_of(batch, pick(raw, batch.wanted, reuse))
        sites = list(leaf)
        if not value.requires_grad:
            raise OptionError(
                f"task {game.task.name}: its value is not a differentiable function of the "
                f"logits; use a loss or a logit difference"
            )
        if not bool(torch.isfinite(value).all()):
            raise NonFiniteError(
                f"{game.model.name}: {game.task.name} is NaN or infinite with the gates at {level}"
            )
        given = torch.autograd.grad(value.sum(), [leaf[s] for s in sites], allow_unused=True)
    n = len(batch.which)
    gradients = {}
    for site, gradient in zip(sites, given, strict=True):
        g = torch.zeros_like(leaf[site]) if gradient is None else gradient
        if not bool(torch.isfinite(g).all()):
            raise NonFiniteError(
                f"{game.model.name}: NaN or infinity in the gate gradients of {site.stack} layer "
                f"{site.layer} on {game.task.name}; try float32"
            )
        # windows of one image are rows of one item, so their tokens are concatenated
        tokens = g.double().reshape(n, -1, *g.shape[1:]).transpose(1, 2).flatten(2)
        gradients[site] = tokens.cpu(), real_at[site].reshape(n, -1).cpu()
    return gradients


_learning = Flag[Tensor](lambda p: p.requires_grad, lambda p, on: p.requires_grad_(on))


@holding
@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Disable the gradients of all weights temporarily, and restore their settings."""
    with _learning.off(module.parameters()):
        yield


def _by_player(game: Game, found: Mapping[Site, Tensor]) -> Tensor:
    """Sum `[prompt, head, ...]` of each attention over the heads of each player."""
    first = next(iter(found.values()))
    total = torch.zeros(first.shape[0], len(game), dtype=torch.double)
    for site, x in found.items():
        index = game.players.member[site]
        mine = index >= 0
        total.index_add_(1, index[mine], x[:, mine])
    return total


def path_gradients(game: Game, steps: int) -> np.ndarray:
    """Average the derivatives along the path of all gates from 0 to 1, `[player, prompt]`."""
    averages = np.zeros((len(game), len(game.task)))
    for batch in game.batches:
        for k in range(steps):
            gradients = token_gradients(game, batch, (k + 0.5) / steps)
            by_player = _by_player(game, {s: g.sum(-1) for s, (g, _) in gradients.items()})
            averages[:, list(batch.which)] += by_player.T.numpy() / steps
    return averages


def coalition_gradients(
    game: Game, gates: Float[Tensor, " player"]
) -> Float[np.ndarray, "player prompt"]:
    """Compute the derivative of each prompt's value by every player's gate at one coalition."""
    level = game.players.spread(gates[None].double())
    derivatives = np.zeros((len(game), len(game.task)))
    for batch in game.batches:
        gradients = token_gradients(game, batch, level)
        by_player = _by_player(game, {s: g.sum(-1) for s, (g, _) in gradients.items()})
        derivatives[:, list(batch.which)] = by_player.T.numpy()
    return derivatives


def score_forms(game: Game, normalise_layers: bool) -> dict[str, np.ndarray]:
    """Return every form as `[player, prompt]`, whose mean over prompts is the score."""
    n = len(game.task)
    summed, absolute = np.zeros((len(game), n)), np.zeros((len(game), n))
    tokens = np.zeros(len(game))
    for batch in game.batches:
        gradients = token_gradients(game, batch)
        which = list(batch.which)
        summed[:, which] = _by_player(game, {s: g.sum(-1) for s, (g, _) in gradients.items()}).T
        for site, (g, real) in gradients.items():
            index = game.players.member[site]
            for player in index[index >= 0].unique().tolist():
                # heads of one player share a gate, so their derivatives are added first
                each = g[:, index == player].sum(1).abs().sum(-1)
                absolute[player, which] += each.numpy()
                tokens[player] += float(real.sum())
    forms = {
        "token_abs": absolute * n / tokens[:, None],
        "example_abs": np.abs(summed),
        "batch_abs": summed * np.where(summed.mean(1, keepdims=True) < 0, -1.0, 1.0),
        "signed": -summed,
    }
    return {f: _normalised(game, x) if normalise_layers else x for f, x in forms.items()}


def _normalised(game: Game, per_prompt: np.ndarray) -> np.ndarray:
    scaled = per_prompt.copy()
    for index in game.players.member.values():
        here = index[index >= 0].unique().numpy()
        size = float(np.linalg.norm(per_prompt[here].mean(1)))
        scaled[here] = per_prompt[here] / size if size else 0.0
    return scaled
