"""Cooperative game over heads: the value of a task with any of its players ablated.

    game = Game(model, repeats_task(model), kind="mean-batch")
    gates = 1 - torch.eye(len(game.players))          # each player out once
    change = game.values(gates) - game.clean          # [coalition, prompt], in game.task.unit

Values are exact: every coalition is a forward pass of the model itself. They cost less than full
forward passes because layers below the first changed head are restored from the clean run, only the
logits that the task reads are computed, and short prompts share a batch with other coalitions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.game.batches import GameBatch, make_batches
from interp.causal.game.interface import RunEstimate
from interp.causal.game.interventions import INTERVENTIONS, check_kind
from interp.causal.game.ledger import Ledger, identity
from interp.causal.game.pace import Pace, estimated
from interp.causal.game.packing import Pack, coalition_packs, first_changes
from interp.causal.game.players import Players
from interp.causal.game.replay import CleanRun, Reuse, capture_for_replay, pick, run
from interp.causal.game.verify import reuse_of
from interp.causal.task import Task
from interp.core.errors import NonFiniteError, OptionError
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.model.calls.sites import Site
from interp.model.hooks.inference import inference

if TYPE_CHECKING:
    from interp.model.model import Model


class Game:
    """Value of a task as a function of the active players.

    Args:
        players: "heads", "kv_groups", "layers", a mapping of labels to heads, or `Players`.
        kind: replacement of an ablated head; see `interp.causal.game.interventions`.
        stack, heads: the heads that are players; by default all.
        reference: prompts for `kind="mean-dataset"`.
        without: heads that are ablated in every run, the clean one included.
        seed: seed of the prompts drawn by `kind="resample"`, if the task has no corrupted ones.
        max_tokens: maximum positions per forward pass (at least one prompt).
        cache_bytes: memory for clean runs; beyond it they are recomputed for each call.
        reuse: False runs a full forward pass with all logits per coalition, which is slower.
        fold: False runs each coalition in a separate batch.
        restrict: False computes all logits. With `fold=False` and `restrict=False`, values equal
            full forward passes bit for bit; otherwise up to rounding of matrix products.
        check: raise if the task's value does not depend on the model's heads.
        resume: a folder that stores finished coalitions, so that the same game can resume.

    Raises:
        OptionError: the options do not fit, heads are edited already, or the task is constant.
        PromptError: `kind` needs prompts of equal length, or more of them.
        NonFiniteError: the task is NaN or infinite in the clean run.
    """

    def __init__(
        self,
        model: Model,
        task: Task,
        *,
        players: str | Mapping[str, Any] | Players = "heads",
        kind: str = "zero",
        stack: str | None = None,
        heads: Any = None,
        reference: Any = None,
        without: Any = None,
        seed: int = 0,
        max_tokens: int = 1024,
        cache_bytes: int = 2**30,
        reuse: bool = True,
        fold: bool = True,
        restrict: bool = True,
        check: bool = True,
        resume: str | os.PathLike | None = None,
    ) -> None:
        check_kind(kind, reference)
        if not isinstance(task, Task):
            raise OptionError(
                f"{type(task).__name__} is not a task; give a Task, such as what"
                " interp.repeats_task(model) returns"
            )
        if model.active_edits:
            raise OptionError(
                f"heads are edited already ({', '.join(model.active_edits)}); leave the edit "
                f"block and name permanently ablated heads with without="
            )
        self.model, self.task, self.kind, self.seed = model, task, kind, seed
        self.reference = None if reference is None else Prompts.of(reference, model)
        self.players = Players.of(model, players, stack=stack, heads=heads)
        self.always_out: dict[Site, Tensor] = {}
        if without is not None:
            out = Players.of(model, {"out": without}, stack=stack)
            self.players = self.players.without(out)
            for site, index in out.member.items():
                self.always_out[site] = (index != 0).double()[None].to(model.device)
        self.max_tokens, self.cache_bytes = max_tokens, cache_bytes
        self.reuse = reuse_of(model)
        if not reuse:
            asked = ("full forward passes, as requested",)
            self.reuse = Reuse(notes=asked, per_input=self.reuse.per_input)
        if not fold:
            self.reuse = replace(self.reuse, fold=False)
        if not restrict:
            self.reuse = replace(self.reuse, unembedding=None, columns=False, tail=())
        self._order = {site: i for i, site in enumerate(model.whole_sites)}
        self._kept: dict[int, CleanRun] = {}
        self.seconds: dict[int, float] = {}  # seconds of each batch's clean run
        self.pace: Pace | None = None  # set once it is measured
        self.step_seconds: float | None = None  # seconds per chain step, set once measured
        self.batches = make_batches(
            model, task, kind, self.reference, seed, max_tokens, per_input=self.reuse.per_input
        )
        self.ledger: Ledger | None = None
        if check:
            self._check()
        if resume is not None:
            self.ledger = Ledger(resume, self)

    @cached_property
    def clean(self) -> Float[Tensor, " prompt"]:
        """Value of the task for each prompt with all players active."""
        return self._clean_values()

    @property
    def notes(self) -> tuple[str, ...]:
        """Optimisations that are unavailable on this model, with reasons."""
        return self.reuse.notes

    def __len__(self) -> int:
        return len(self.players)

    def __repr__(self) -> str:
        who = f"{len(self)} {self.players.kind}"
        return f"Game({self.model.name}, {self.task.name}, {who}, {self.kind})"

    # --- values ---------------------------------------------------------------------------------

    def values(
        self, gates: Any, *, progress: Progress | None = None
    ) -> Float[Tensor, "coalition prompt"]:
        """Compute the task's value per prompt under each row of gates, in float64 on the CPU.

        Args:
            gates: `[coalition, player]`; 1 = active, 0 = replaced, between = a mixture.
            progress: see `Progress`.

        Every coalition sees the same prompts and replacements (common random numbers), so
        differences between rows have no additional sampling noise.

        Raises:
            OptionError: the gates have another shape, or are not finite.
            NonFiniteError: the task is NaN or infinite under a coalition.
        """
        table = self.checked(gates)
        if self.ledger is None:
            return self._run(table, table, progress, 0)
        known, table_values = self.ledger.find(table)
        todo, done = (~known).nonzero().flatten(), int(known.sum())
        for part in todo.split(self._at_once()):
            table_values[part] = self._run(table[part], table, progress, done)
            self.ledger.add(table[part], table_values[part])
            done += len(part)
        return table_values

    def _at_once(self) -> int:
        """Return the coalitions per write to the ledger, about five seconds of forward passes."""
        assert len(self.clean)  # has been run and timed
        return max(1, min(1024, int(5 / max(sum(self.seconds.values()), 1e-6))))

    def _run(
        self, table: Tensor, whole: Tensor, progress: Progress | None, before: int
    ) -> Float[Tensor, "coalition prompt"]:
        """Compute the values of some rows of the whole table, after `before` others."""
        run_values = torch.empty(len(table), len(self.task), dtype=torch.double)
        packs = self.packs(table)
        done = 0
        for number, batch in enumerate(self.batches):
            with inference(self.model.module):
                for pack in packs[number]:
                    value = self.evaluate(number, pack, table[list(pack.rows)])
                    run_values[torch.tensor(pack.rows)[:, None], torch.tensor(batch.which)] = value
                    done += len(pack.rows)
                    if progress is not None:
                        what = f"{self.task.name}, {self.kind}"
                        progress(what, before + done // len(self.batches), len(whole))
            self.trim(number)
        assert done == len(table) * len(self.batches)
        bad = (~torch.isfinite(run_values)).nonzero()
        if len(bad):
            coalition, prompt = bad[0].tolist()
            out = [x for x, g in zip(self.players.labels, table[coalition], strict=True) if g != 1]
            raise NonFiniteError(
                f"{self.model.name}: {self.task.name} is {float(run_values[coalition, prompt])} on "
                f"prompt {prompt} with {len(out)} players changed ({', '.join(out[:4])}); the "
                f"activations or the task's function overflow; try float32 or another task"
            )
        return run_values

    def estimate(self, gates: Any) -> RunEstimate:
        """Estimate the time and memory of `values(gates)`.

        If more than two passes are needed, some are run and timed; otherwise the time is that of
        the clean run, an upper bound for a pass that coalitions share. `gates` may be a number of
        coalitions: each is then assumed to change the lowest layer.
        """
        return estimated(self, gates)

    # --- what other estimators need -------------------------------------------------------------

    def gates_of(self, table: Float[Tensor, "coalition player"]) -> dict[Site, Tensor]:
        """Return gates per attention, permanently ablated heads included: `[coalition, head]`."""
        gates = self.players.spread(table)
        for site, out in self.always_out.items():
            gates[site] = gates.get(site, torch.ones(len(table), site.n_heads).to(table)) * out.to(
                table
            )
        return gates

    def value_of(self, batch: GameBatch, logits: Tensor, copies: int = 1) -> Tensor:
        """Return the task's value from the needed logits of a batch, `[copies · prompt]`."""
        clean = None
        if self.task.needs_clean:
            clean = self.clean_run(self.batches.index(batch)).logits
            clean = pick(clean, batch.wanted, self.reuse).repeat(copies, 1)
        if batch.wanted is None and self.task.vocabulary is not None:
            logits = logits[:, list(self.task.vocabulary)]
        return self.task.values(logits, list(batch.which) * copies, clean)

    def about(self) -> dict[str, Any]:
        """Return the game's provenance."""
        about = self.task.about() | {
            "kind": self.kind,
            "players": self.players.kind,
            "n_players": len(self),
            "seed": self.seed,
            "always_out": [
                f"{site.stack} L{site.layer}H{h}"
                for site, gate in self.always_out.items()
                for h, g in enumerate(gate[0].tolist())
                if g == 0
            ],
            "reuse": "prefix" if self.reuse.blocks else "none",
            "folded": self.reuse.fold,
            "notes": list(self.notes),
        }
        if self.reference is not None:
            about["reference"] = f"{self.reference.design}, {self.reference.hash}"
        return about

    def identity(self) -> dict[str, Any]:
        """Return everything that affects the values, as the key of stored results."""
        return identity(self)

    @property
    def kept_bytes(self) -> int:
        """Return the memory used by clean runs."""
        return min(self.cache_bytes, sum(run.n_bytes for run in self._kept.values()))

    # --- clean runs -----------------------------------------------------------------------------

    def clean_run(self, number: int) -> CleanRun:
        """Return the activations of one batch with all players active."""
        if number not in self._kept:
            batch = self.batches[number]
            with inference(self.model.module):
                self._kept[number] = capture_for_replay(
                    self.model,
                    batch.inputs,
                    self.reuse,
                    base=self.always_out or None,
                    replacement=batch.replacement,
                    wanted=batch.wanted,
                )
            self.seconds[number] = self._kept[number].seconds
        return self._kept[number]

    def trim(self, number: int) -> None:
        """Drop this clean run if all together exceed the memory limit."""
        if sum(run.n_bytes for run in self._kept.values()) > self.cache_bytes:
            self._kept.pop(number, None)

    def _clean_values(self) -> Tensor:
        clean = torch.empty(len(self.task), dtype=torch.double)
        with torch.no_grad():
            for number, batch in enumerate(self.batches):
                logits = pick(self.clean_run(number).logits, batch.wanted, self.reuse)
                if batch.wanted is None and logits.shape[0] != len(batch.which):
                    raise OptionError(
                        f"task {self.task.name}: {len(batch.which)} prompts gave an output of "
                        f"shape {tuple(logits.shape)}; expected one row per prompt"
                    )
                clean[list(batch.which)] = self.value_of(batch, logits).cpu()
                self.trim(number)
        bad = (~torch.isfinite(clean)).nonzero().flatten().tolist()
        if bad:
            raise NonFiniteError(
                f"{self.model.name}: {self.task.name} is {float(clean[bad[0]])} on prompt {bad[0]} "
                "of the clean run, so no score can be computed; check the task's function"
            )
        return clean

    def _check(self) -> None:
        """Raise if no head changes the task, or the corrupted prompts change nothing.

        A step-like task (without gradient) is exempt, since it may legitimately stay constant.
        """
        clean = self.clean  # raises on values that are not finite
        if not self.task.has_gradient:
            return
        everything = Players.of(self.model)
        playing, self.players = self.players, everything
        try:
            silent = self.values(torch.zeros(1, len(everything)))[0]
        finally:
            self.players = playing
        if not torch.equal(silent, clean):
            return
        if INTERVENTIONS[self.kind].of_pairs(self.task):
            raise OptionError(
                f"task {self.task.name}: the clean and the corrupted runs do not differ; give "
                f"corrupted prompts in which the behaviour is absent"
            )
        raise OptionError(
            f"task {self.task.name} is constant: with every head replaced ({self.kind}) it is the "
            f"same on every prompt; check which logits it reads"
        )

    # --- evaluation -----------------------------------------------------------------------------

    def checked(self, gates: Any) -> Tensor:
        """Return gates as a float64 table on the model's device; raise OptionError if invalid."""
        table = torch.as_tensor(gates).detach().double()
        if table.dim() != 2 or table.shape[1] != len(self):
            raise OptionError(
                f"gates of shape {tuple(table.shape)} do not fit; expected [coalition, player] "
                f"with {len(self)} players"
            )
        if not bool(torch.isfinite(table).all()):
            raise OptionError(
                "a gate is NaN or infinite; expected 1 (active), 0 (replaced) or a value between"
            )
        return table.to(self.model.device)

    def packs(self, table: Tensor) -> list[list[Pack]]:
        """Return, for each batch of prompts, the coalitions that share a forward pass."""
        firsts = first_changes(self.players.spread(table), self._order)
        sizes = [max(1, self.max_tokens // max(1, batch.tokens)) for batch in self.batches]
        return [
            coalition_packs(firsts, self._order, most if self.reuse.fold else 1) for most in sizes
        ]

    @torch.no_grad()
    def evaluate(self, number: int, pack: Pack, table: Tensor) -> Tensor:
        """Return `[coalition, prompt]` of one pack on one batch."""
        batch = self.batches[number]
        if pack.first is None:
            return self.clean[list(batch.which)].expand(len(pack.rows), -1)
        copies = len(pack.rows)
        raw = run(
            self.model,
            batch.inputs,
            self.gates_of(table),
            batch.replacement,
            first=pack.first if self.reuse.blocks else None,
            clean=self.clean_run(number) if self.reuse.blocks else None,
            reuse=self.reuse,
            copies=copies,
            wanted=batch.wanted,
        )
        logits = pick(raw, batch.wanted, self.reuse, copies)
        return self.value_of(batch, logits, copies).reshape(copies, -1).cpu()
