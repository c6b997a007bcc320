"""Choice of heads on half of the prompts, and a checkpoint without them: `interp prune --save`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.causal.game.interventions import INTERVENTIONS
from interp.core.errors import OptionError, StoreError

if TYPE_CHECKING:
    from interp.causal.checkpoint.save import SavedCheckpoint
    from interp.causal.task import Task
    from interp.model.model import Model

SEARCHED = {"gates", "pairs"}  # searches that need prompts of their own
N_RANDOM = 50  # random removals of a certificate


@dataclass(frozen=True)
class Saving:
    """Options of `interp prune --save`.

    Args:
        folder: the folder to write, which must not exist.
        keep: number of heads (or players) to keep.
        gates: file that `interp importance gates` wrote.
        equal: keep equally many heads in every layer.
        repair: steps of training after the removal; 0 for none.
        rounds: number of rounds of removal and repair.
    """

    folder: Path | None
    keep: int | None
    gates: Path | None
    equal: bool
    repair: int = 0
    rounds: int = 1

    def check(self, n_models: int, by: list[str], kind: str, heads: Any) -> None:
        """Refuse options that do not fit, before a model is loaded."""
        asked = [self.keep is not None, self.gates is not None]
        if self.folder is None:
            if any(asked) or self.equal or self.repair or self.rounds > 1:
                raise OptionError(
                    "--keep, --gates, equal, repair and rounds (settings) need --save DIR"
                )
            return
        if self.folder.exists():
            raise StoreError(f"{self.folder} exists already; name a new folder")
        if n_models > 1:
            raise OptionError("--save writes one checkpoint; give one MODEL")
        if sum([*asked, heads is not None]) != 1:
            raise OptionError(
                "--save needs one of: --heads with the heads to remove, --keep N (with --method), "
                "or --gates FILE"
            )
        if self.keep is not None and (len(by) != 1 or by[0] in ("greedy", *SEARCHED)):
            raise OptionError("--keep needs one importance in --method, not a search")
        if self.rounds > 1 and (self.keep is None or self.equal or not self.repair):
            raise OptionError(
                "--set rounds needs --keep and --set repair, and does not go with --set equal"
            )
        if self.repair and not INTERVENTIONS[kind].is_zero:
            raise OptionError(
                "--set repair trains with zeros in place of the heads; use --kind zero"
            )
        if INTERVENTIONS[kind].removal is None:
            raise OptionError(
                f"--kind {kind} cannot be stored in weights; use zero, mean-batch (the mean over "
                "prompts that are not judged) or mean-dataset"
            )

    def write(
        self,
        model: Model,
        task: Task,
        by: list[str],
        game: dict[str, Any],
        spec: dict[str, Any],
        source: str,
        progress: Any,
        n_random: int = N_RANDOM,
    ) -> SavedCheckpoint:
        """Choose the heads on half of the prompts and write the checkpoint."""
        from interp.causal.checkpoint.certificate import Judged
        from interp.causal.checkpoint.choose import gated_parts, heads_by_name, ranked_heads
        from interp.causal.checkpoint.repair import prune_in_rounds, repair_pruned
        from interp.causal.checkpoint.save import save_pruned
        from interp.causal.gating.learn import halves
        from interp.causal.gating.result import LearnedGates
        from interp.causal.gating.units import selected
        from interp.causal.methods import importances

        seed = spec["seed"]
        judged = Judged.of(task, seed, spec)
        removed: Any
        if self.gates is not None:
            gates = LearnedGates.load(self.gates)
            removed = gates
            gated_parts(model, gates)  # refused before anything else is computed
            if gates.provenance.get("prompts_hash") == task.about()["prompts_hash"]:
                held_out = tuple(gates.provenance["judged_on"]) or judged.held_out
                judged = Judged(task, held_out, spec)
            how: dict[str, Any] = {"gates": self.gates.name, "method": gates.method}
        elif self.rounds > 1:
            assert self.keep is not None
            given = {k: v for k, v in game.items() if k not in ("resume", "kind", "seed")}
            removed = prune_in_rounds(
                model,
                selected(task, halves(task, seed)[0]),
                by[0],
                self.keep,
                rounds=self.rounds,
                repair_steps=self.repair,
                seed=seed,
                progress=progress,
                **given,
            )
            how = {"by": by[0], "keep": self.keep, "equal": False}
        elif self.keep is not None:
            given = {k: v for k, v in game.items() if k != "resume"}
            part = selected(task, halves(task, seed)[0])
            [ranking] = importances(model, part, by, progress=progress, **given).values()
            removed = ranked_heads(model, ranking, self.keep, equal=self.equal)
            how = {"by": by[0], "keep": self.keep, "equal": self.equal}
        else:
            removed = heads_by_name(model, game["heads"], stack=game.get("stack"))
            how = {"heads": "given"}
        if self.repair and self.rounds == 1:
            heads, mlps = removed, ()
            if isinstance(removed, LearnedGates):
                heads, mlps = gated_parts(model, removed)
            removed = repair_pruned(
                model,
                heads,
                game.get("reference") or judged.other_prompts,
                mlps=mlps,
                steps=self.repair,
                seed=seed,
                progress=progress,
            )
        kind: Any = INTERVENTIONS[game["kind"]].removal
        assert self.folder is not None
        return save_pruned(
            model,
            removed,
            self.folder,
            n_random=n_random,
            kind=kind,
            reference=game.get("reference"),
            tasks=[judged],
            seed=seed,
            made_with=how,
            source=source,
            progress=progress,
        )
