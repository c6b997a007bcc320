"""Certificate of a checkpoint without some heads: what it lost, measured on held-out prompts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.causal.checkpoint.choose import Removed, head_names
from interp.causal.checkpoint.probe import comparison_inputs, sizes, speed, tolerance
from interp.causal.checkpoint.schema import FORMAT
from interp.causal.game.game import Game
from interp.causal.gating.gated_task import GatedTask
from interp.causal.gating.learn import halves
from interp.causal.gating.units import GatedUnits, layer_matched_sets, selected
from interp.causal.task import Task
from interp.core.clusters import cluster_count
from interp.core.errors import OptionError
from interp.core.files import open_file
from interp.core.intervals import around
from interp.core.standard_errors import standard_error
from interp.core.statistics import prediction_band
from interp.model.content import versions

if TYPE_CHECKING:
    from interp.model.model import Model

CERTIFICATE, TEXT = "certificate.json", "certificate.txt"

_SPEC = {"source": "", "measure": None, "n": None, "max_length": None, "seed": 0}
_UNITS = {
    "heads": "heads in every layer",
    "kv_groups": "kv groups in every layer",
    "layers": "whole layers",
}


@dataclass(frozen=True, eq=False)
class Judged:
    """Task with the prompts on which a checkpoint is judged.

    Args:
        task: the task.
        held_out: numbers of the prompts that had no part in the choice of the heads.
        spec: arguments of `interp.causal.task_file.make_task` that make the task again; without
            them `verify_certificate` needs the task itself.
    """

    task: Task
    held_out: tuple[int, ...]
    spec: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, seed: int, spec: Mapping[str, Any] | None = None) -> Judged:
        """Return the task judged on the second half of its prompts, as in `learn_gates`."""
        second = halves(task, seed)[1]
        if not second:
            raise OptionError(f"task {task.name} has one prompt or cluster; nothing is held out")
        return cls(task, tuple(second), dict(spec or {}))

    @property
    def whole_spec(self) -> dict[str, Any]:
        """The arguments that make the task again, defaults included; empty without them."""
        return _SPEC | dict(self.spec) if self.spec else {}

    @property
    def other_prompts(self) -> Any:
        """The prompts that are not judged; all if every prompt is held out."""
        rest = [i for i in range(len(self.task)) if i not in self.held_out]
        return selected(self.task, rest).prompts if rest else self.task.prompts


def certificate_of(
    before: Model,
    after: Model,
    removed: Removed,
    folder: Path,
    judged: Sequence[Judged],
    difference: float,
    means: Mapping[tuple[str, int], Tensor] | None,
    about: Mapping[str, Any],
    mlps: Sequence[str] = (),
) -> dict[str, Any]:
    """Measure everything that the certificate states."""
    weights = sorted(folder.glob("*.safetensors"))
    several = len(before.stacks) > 1
    timed = {}
    if before.takes_text:
        timed = speed({"before": before, "after": after}, comparison_inputs(before, 0))
    return {
        "format": FORMAT,
        **about,
        "original": {
            "name": before.name,
            "revision": before.revision,
            "class": type(before.module).__name__,
            "dtype": str(before.dtype).removeprefix("torch."),
            "content_hash": before.content_hash,
        },
        "content_hash": after.content_hash,
        "removed": head_names(removed, several),
        "removed_mlps": list(mlps),
        "size": {"before": sizes(before), "after": sizes(after, weights)},
        "tokens_per_second": timed,
        "logits": {"difference": difference, "allowed": tolerance(before)},
        "means_hash": None if means is None else _means_hash(means),
        "tasks": [
            judged_task(
                before,
                after,
                removed,
                one,
                about["n_random"],
                about["seed"],
                mlps,
                repaired=about["repair"] is not None,
            )
            for one in judged
        ],
        "files": hashes_of_files(folder),
        "versions": versions(),
    }


def hashes_of_files(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a checkpoint, by name, but for the certificate itself."""
    hashes = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name not in (CERTIFICATE, TEXT) and not path.is_dir():
            try:
                with open_file(path) as content:
                    hashes[name] = hashlib.file_digest(content, "sha256").hexdigest()
            except OSError as error:
                hashes[name] = f"cannot be read: {error.strerror}"
    return hashes


def judged_task(
    before: Model | None,
    after: Model,
    removed: Removed,
    one: Judged,
    n_random: int,
    seed: int,
    mlps: Sequence[str] = (),
    *,
    repaired: bool = False,
) -> dict[str, Any]:
    """Measure one task on its held-out prompts, before, after, and under random removals.

    `before` None measures the checkpoint alone. Random sets lose as many parts of the same unit as
    the removal (`removed_unit`): heads or kv groups in every layer, or whole layers; and as many
    MLPs; by zero ablation whatever the kind of the removal. With `repaired`, the value of the
    original without the removed parts, untrained, is stated too, and the random sets are compared
    with it.
    """
    task = selected(one.task, list(one.held_out))
    clusters = task.clusters
    values: dict[str, Any] = {
        "task": one.task.name,
        "task_hash": one.task.hash,
        "spec": one.whole_spec,
        "unit": task.unit,
        "higher_is_better": task.higher_is_better,
        "held_out": list(one.held_out),
        "clusters": cluster_count(len(task), clusters),
    }
    x = Game(after, task, check=False).clean.numpy()
    values["after"] = mean_and_interval(x, clusters)
    if before is None:
        return values
    y = Game(before, task, check=False).clean.numpy()
    values |= {
        "before": mean_and_interval(y, clusters),
        "change": mean_and_interval(x - y, clusters),
    }
    unit = removed_unit(removed)
    units = GatedUnits.of(before, unit, "with" if mlps else "none")
    kept = np.ones(len(units))
    for number in range(units.n_heads):
        assert units.players is not None
        if all(h in removed.get(site, ()) for site, h in units.players.heads_of(number)):
            kept[number] = 0
    for label in mlps:
        kept[units.labels.index(label)] = 0
    gated = GatedTask(before, task, units, "zero")
    unrepaired = x
    if repaired:
        unrepaired = gated.values(torch.from_numpy(kept)[None]).numpy()[0]
        values["unrepaired"] = mean_and_interval(unrepaired, clusters)
    if n_random:
        sets = layer_matched_sets(units, kept, n_random, np.random.default_rng([seed, 29]))
        random = gated.values(sets).numpy().mean(1)
        low, high = prediction_band(random)
        better = task.sign * random >= task.sign * unrepaired.mean()
        values["random"] = {
            "n": n_random,
            "unit": unit,
            "kind": "zero",
            "mean": float(random.mean()),
            "low": low,
            "high": high,
            "share_at_least_as_good": float(better.mean()),
        }
    return values


def removed_unit(removed: Removed) -> str:
    """Return the largest unit that the removal consists of: "layers", "kv_groups" or "heads".

    Random sets that lose single heads are no control for the removal of whole kv groups or layers.
    """
    cut = {site: set(heads) for site, heads in removed.items() if heads}
    if cut and all(len(heads) == site.n_heads for site, heads in cut.items()):
        return "layers"
    whole = [
        {site.kv_head(h) for h in heads}.isdisjoint(
            site.kv_head(h) for h in range(site.n_heads) if h not in heads
        )
        for site, heads in cut.items()
    ]
    grouped = any(site.n_kv_heads < site.n_heads for site in cut)
    return "kv_groups" if grouped and all(whole) else "heads"


def mean_and_interval(x: np.ndarray, clusters: Sequence[str] | None) -> dict[str, float | int]:
    """Return the mean over prompts with its 95 % t interval over clusters."""
    n = cluster_count(len(x), clusters)
    error = standard_error(x[None], clusters)
    low, high = around(x.mean(keepdims=True), [(error, n - 1.0)])[0].tolist()
    return {"value": float(x.mean()), "low": low, "high": high, "n": len(x)}


def _means_hash(means: Mapping[tuple[str, int], Tensor]) -> str:
    digest = hashlib.sha256()
    for key, x in sorted(means.items()):
        digest.update(repr(key).encode())
        digest.update(x.to(torch.float32).cpu().numpy().tobytes())
    return digest.hexdigest()


def certificate_text(values: Mapping[str, Any]) -> str:
    """Return the certificate in plain sentences."""
    before, after = values["size"]["before"], values["size"]["after"]
    original, n = values["original"], len(values["removed"])
    mlps = values["removed_mlps"]
    also = f" and without {', '.join(mlps)}" if mlps else ""
    lines = [
        f"{original['name']} ({original['class']}) without {n} of {before['heads']} heads{also}",
        f"  removed: {', '.join([*values['removed'], *mlps])}",
        f"  form: {values['form']}"
        + (
            " (needs trust_remote_code=True: modeling_pruned.py)"
            if values["form"] == "compact"
            else ""
        ),
        f"  means of removed heads: {values['means']}",
        *([f"  means of removed MLPs: {values['mlp_means']}"] if mlps else []),
        *(f"  note: {note}" for note in values["notes"]),
        f"  parameters: {before['parameters']:,} to {after['parameters']:,}; not zero: "
        f"{before['nonzero_parameters']:,} to {after['nonzero_parameters']:,}",
        f"  memory: weights {before['parameter_bytes']:,} to {after['parameter_bytes']:,} bytes, "
        f"cache {before['cache_bytes_per_token']:,} to {after['cache_bytes_per_token']:,} bytes "
        "per token",
    ]
    if values["tokens_per_second"]:
        pace = values["tokens_per_second"]
        lines.append(
            f"  speed: {pace['before']:,.0f} to {pace['after']:,.0f} tokens per second (a forward "
            "pass of 4 prompts, median of 7 runs on this machine)"
        )
    if values["repair"] is not None:
        repair = values["repair"]
        lines.append(
            f"  repair: {repair['rounds']} x {repair['steps']} steps at rate {repair['rate']:g} on "
            f"{repair['n_prompts']} prompts; loss against the original "
            f"{repair['first_loss']:.3g} to "
            f"{repair['last_loss']:.3g} nats per token"
        )
    logits = values["logits"]
    lines.append(
        f"  outputs differ from the ablated model by {logits['difference']:.1e} (allowed "
        f"{logits['allowed']:.1e})"
    )
    for task in values["tasks"]:
        first, last, change = (_interval(task[k]) for k in ("before", "after", "change"))
        lines.append(
            f"  {task['task']} on {task['before']['n']} held-out prompts ({task['unit']}): {first} "
            f"to {last}, change {change}"
        )
        if "unrepaired" in task:
            lines.append(f"    without repair {_interval(task['unrepaired'])}")
        if "random" in task:
            band, too = task["random"], " and as many MLPs" if mlps else ""
            too += ", without repair" if values["repair"] is not None else ""
            lines.append(
                f"    {band['n']} random removals of as many {_UNITS[band['unit']]}{too}: "
                f"{band['mean']:.4g}, 95 % band {band['low']:.4g} to {band['high']:.4g}; "
                f"{band['share_at_least_as_good']:.0%} at least as good"
            )
    return "\n".join(lines)


def _interval(x: Mapping[str, Any]) -> str:
    low, high = (math.nan if x[end] is None else x[end] for end in ("low", "high"))  # as in JSON
    return f"{x['value']:.4g} [{low:.4g}, {high:.4g}]"
