"""A task as a differentiable function of the gates of heads and MLPs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.causal.game.game import Game
from interp.causal.game.interventions import intervention, names_with
from interp.causal.game.replacement import gated
from interp.causal.game.replay import Reuse, pick, run
from interp.causal.gate_derivatives import frozen
from interp.causal.gating.units import GatedUnits
from interp.causal.task import Task
from interp.core.errors import NonFiniteError, OptionError
from interp.core.interrupts import held, holding
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread, inference

if TYPE_CHECKING:
    from interp.model.model import Model


class GatedTask:
    """Value of a task per prompt under given gates.

    Args:
        model: the model.
        task: the task.
        units: what has a gate.
        kind: what replaces the output of a closed head. An MLP is replaced by zero with "zero" and
            by its mean over the task's tokens with "mean-batch"; other kinds need heads only.
        options: of `Game`.

    Raises:
        OptionError: the kind does not fit MLPs, or the options do not fit.
    """

    def __init__(
        self, model: Model, task: Task, units: GatedUnits, kind: str, **options: Any
    ) -> None:
        entry = intervention(kind)
        if units.mlps and not entry.of_mlps:
            raise OptionError(
                f"kind={kind!r} has no counterpart for an MLP; use "
                f"{names_with(lambda x: x.of_mlps)}, or gate heads only"
            )
        # players of the game only name what the task can depend on
        players = "heads" if units.players is None else units.players
        self.game = Game(model, task, kind=kind, players=players, **options)
        self.units = units
        self._mlp_means: dict[str, Tensor] = {}
        if units.mlps and not entry.is_zero:
            self._mlp_means = self._means()

    @property
    def n_batches(self) -> int:
        """Number of batches of prompts."""
        return len(self.game.batches)

    def rows(self, number: int) -> int:
        """Return the number of prompts of a batch."""
        return len(self.game.batches[number].which)

    def value(self, number: int, gates: Float[Tensor, "#prompt unit"]) -> Float[Tensor, " prompt"]:
        """Compute the value of each prompt of one batch, differentiable by the gates."""
        batch, game = self.game.batches[number], self.game
        gates = gates.expand(len(batch.which), -1)
        sites = self.units.site_gates(gates)
        out = {s: g.to(gates.dtype) for s, g in game.always_out.items()}

        def visit(site: Site, call: Call, real: Tensor) -> None:
            gate = sites.get(site)
            if site in out:
                base = out[site].expand(len(gates), -1)
                gate = base if gate is None else gate * base
            if gate is not None:
                call.z = gated(call.z, gate, batch.replacement.at(site, call.z, call))

        reuse = Reuse(unembedding=game.reuse.unembedding, columns=game.reuse.columns)
        module = game.model.module
        with frozen(module), inference(module):
            with game.model.visited(visit), self._gated_mlps(gates):
                raw = run(
                    game.model,
                    batch.inputs,
                    {},
                    batch.replacement,
                    reuse=reuse,
                    wanted=batch.wanted,
                )
            return game.value_of(batch, pick(raw, batch.wanted, reuse))

    @torch.no_grad()
    def values(self, table: Float[Tensor, "set unit"]) -> Float[Tensor, "set prompt"]:
        """Compute the value of every prompt under each row of gates, in float64 on the CPU."""
        table = table.to(self.game.model.device, torch.double)
        if not self.units.mlps:
            return self.game.values(table)
        set_values = torch.empty(len(table), len(self.game.task), dtype=torch.double)
        for number, batch in enumerate(self.game.batches):
            for row, gates in enumerate(table):
                set_values[row, list(batch.which)] = self.value(number, gates[None]).double().cpu()
        if not bool(torch.isfinite(set_values).all()):
            raise NonFiniteError(f"{self.game.task.name} is NaN or infinite under a set of gates")
        return set_values

    @holding
    @contextmanager
    def _gated_mlps(self, gates: Tensor) -> Iterator[None]:
        with ExitStack() as stack:
            for at, (label, where) in enumerate(self.units.mlps, self.units.n_heads):
                gate, mean = gates[:, at], self._mlp_means.get(label)

                def hook(
                    module: nn.Module,
                    args: Any,
                    output: Any,
                    gate: Tensor = gate,
                    other: Tensor | None = mean,
                ) -> Any:
                    first = output[0] if isinstance(output, tuple) else output
                    g = gate.repeat_interleave(first.shape[0] // len(gate), 0)
                    g = g.reshape(-1, *[1] * (first.dim() - 1)).to(first.dtype)
                    new = g * first if other is None else g * first + (1 - g) * other.to(first)
                    return (new, *output[1:]) if isinstance(output, tuple) else new

                module = self.game.model.module.get_submodule(where.module)
                handle = module.register_forward_hook(in_this_thread(hook))
                stack.callback(handle.remove)
            yield

    @held()
    @torch.no_grad()
    def _means(self) -> dict[str, Tensor]:
        """Return the mean output of each MLP over the task's real tokens."""
        total: dict[str, Tensor] = {}
        count = 0.0
        for batch in self.game.batches:
            mask = batch.inputs.get("attention_mask")
            with ExitStack() as stack:
                for label, where in self.units.mlps:

                    def hook(
                        module: nn.Module,
                        args: Any,
                        output: Any,
                        label: str = label,
                        mask: Any = mask,
                    ) -> None:
                        x = (output[0] if isinstance(output, tuple) else output).double()
                        x = x if mask is None else x * mask[..., None]
                        total[label] = total.get(label, 0) + x.flatten(0, -2).sum(0)

                    module = self.game.model.module.get_submodule(where.module)
                    stack.callback(module.register_forward_hook(hook).remove)
                self.game.model.run(batch.inputs)
            count += batch.tokens if mask is None else float(mask.sum())
        return {label: x / count for label, x in total.items()}
