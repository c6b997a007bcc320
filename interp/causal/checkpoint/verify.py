"""Verification of a certificate: everything it states is computed again and compared."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.causal.checkpoint.certificate import CERTIFICATE, FORMAT, Judged, judged_task
from interp.causal.checkpoint.choose import Removed, heads_from_names, require_same_model
from interp.causal.checkpoint.mlps import removed_mlps
from interp.causal.checkpoint.probe import (
    comparison_inputs,
    gated_edits,
    output_difference,
    sizes,
    speed,
    tolerance,
)
from interp.causal.task import Task
from interp.causal.task_file import make_task
from interp.core.errors import InterpError, LoadError, StoreError
from interp.core.files import read_bytes
from interp.model.load import load

if TYPE_CHECKING:
    from interp.model.model import Model

RELATIVE = 1e-3  # other processors round differently
_COMPARED = ("before", "after", "change", "unrepaired", "random")


@dataclass(frozen=True)
class Verification:
    """Outcome of the verification of a certificate.

    Args:
        folder: the checkpoint.
        differences: statements that do not hold, with both numbers; empty if all hold.
        not_checked: statements that could not be computed again, with the reason.
        checked: number of statements that were compared.
        tokens_per_second: speed measured now, which is not compared.
    """

    folder: Path
    differences: tuple[str, ...]
    not_checked: tuple[str, ...]
    checked: int
    tokens_per_second: Mapping[str, float]

    def __repr__(self) -> str:
        found = "holds" if not self.differences else f"{len(self.differences)} statements differ"
        lines = [f"{self.folder}: {found} ({self.checked} statements computed again)"]
        lines += [f"  differs: {x}" for x in self.differences]
        lines += [f"  not checked: {x}" for x in self.not_checked]
        if self.tokens_per_second:
            said = ", ".join(f"{k} {v:,.0f}" for k, v in self.tokens_per_second.items())
            lines.append(f"  tokens per second now, not compared: {said}")
        return "\n".join(lines)


def verify_certificate(
    folder: str | os.PathLike,
    *,
    original: Model | str | None = None,
    tasks: Sequence[Task] = (),
    trust_remote_code: bool = False,
) -> Verification:
    """Compute the statements of a certificate again, and list those that differ.

    Numbers may differ by 0.1 %, since processors round differently; files and hashes must be equal.

    Args:
        folder: a checkpoint that `save_pruned` wrote.
        original: the original model; by default it is loaded from where it was.
        tasks: tasks that were made in Python, which the certificate cannot make again.
        trust_remote_code: run the modelling file of a compact checkpoint.

    Raises:
        StoreError: there is no certificate, or it cannot be read.
        LoadError: the checkpoint cannot be loaded, or needs trust.
        OptionError: the original that is given has another hash.
    """
    path = Path(folder)
    told = _read(path / CERTIFICATE)
    differences = list(_files(told, path))
    missing: list[str] = []
    after = load(path, trust_remote_code=trust_remote_code)
    before = _original(told, original, missing)
    counted = [0]

    def compare(what: str, stated: Any, found: Any) -> None:
        counted[0] += 1
        if not _same(stated, found):
            differences.append(f"{what}: certificate {_short(stated)}, now {_short(found)}")

    compare("hash of the weights", told["content_hash"], after.content_hash)
    stored = sizes(after, sorted(path.glob("*.safetensors")))
    for name, value in told["size"]["after"].items():
        compare(f"{name} of the checkpoint", value, stored[name])
    pace = {"after": after}
    removed: Removed = {}
    if before is not None:
        pace = {"before": before, "after": after}
        removed = heads_from_names(before, told["removed"], told["removed_mlps"])
        own = sizes(before)
        for name in ("parameters", "nonzero_parameters", "heads"):
            compare(f"{name} of the original", told["size"]["before"][name], own[name])
        _outputs(told, before, after, removed, differences, missing)
    for stated in told["tasks"]:
        _task(stated, told, before, after, removed, tasks, compare, missing)
    measured = speed(pace, comparison_inputs(after, 0)) if after.takes_text else {}
    total = counted[0] + len(told["files"])
    return Verification(path, tuple(differences), tuple(missing), total, measured)


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(read_bytes(path))
        if told["format"] != FORMAT:
            raise ValueError(f"its 'format' is not {FORMAT!r}")
        return {k: told[k] for k in told} | {
            k: told[k]
            for k in (
                "files",
                "size",
                "tasks",
                "removed",
                "original",
                "content_hash",
                "removed_mlps",
                "mlp_means",
                "repair",
            )
        }
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a certificate, or is damaged: {error}") from error


def _files(told: Mapping[str, Any], folder: Path) -> Iterator[str]:
    for name, stated in told["files"].items():
        file = folder / name
        if not file.is_file():
            yield f"{name}: the file is missing"
        elif hashlib.sha256(file.read_bytes()).hexdigest() != stated:
            yield f"{name}: the file has changed"


def _original(
    told: Mapping[str, Any], given: Model | str | None, missing: list[str]
) -> Model | None:
    stated = told["original"]
    if given is not None and not isinstance(given, str):
        require_same_model(given, stated["content_hash"], "the removed heads")
        return given
    try:
        found = load(given or told["source"], revision=stated["revision"])
    except LoadError as error:
        if given is not None:
            raise
        missing.append(f"the original, its outputs and values before: {error}")
        return None
    require_same_model(found, stated["content_hash"], "the removed heads")
    return found


def _outputs(
    told: Mapping[str, Any],
    before: Model,
    after: Model,
    removed: Removed,
    differences: list[str],
    missing: list[str],
) -> None:
    if "folded" in (told["means"], told["mlp_means"]):
        missing.append("outputs: the means of the removed parts are only in the biases")
        return
    if told["repair"] is not None:
        missing.append("outputs: the weights were trained, which is not repeated")
        return
    if not before.takes_text:
        missing.append("outputs: the model reads no tokens")
        return
    inputs = comparison_inputs(before, told["seed"])
    mlps = removed_mlps(before, told["removed_mlps"])
    found = output_difference(before, after, inputs, gated_edits(removed, None), mlps)
    if not found <= tolerance(before):
        differences.append(
            f"outputs: they differ from the ablated model by {found:.2g}, allowed "
            f"{tolerance(before):.2g}"
        )


def _task(
    stated: Mapping[str, Any],
    told: Mapping[str, Any],
    before: Model | None,
    after: Model,
    removed: Removed,
    tasks: Sequence[Task],
    compare: Any,
    missing: list[str],
) -> None:
    name = stated["task"]
    task = next((t for t in tasks if t.hash == stated["task_hash"]), None)
    if task is None and not stated["spec"]:
        missing.append(f"{name}: it was made in Python; give it with tasks=")
        return
    try:
        task = task or make_task(before or after, **stated["spec"])
    except (InterpError, OSError) as error:
        missing.append(f"{name}: it cannot be made again: {error}")
        return
    compare(f"prompts of {name}", stated["task_hash"], task.hash)
    if task.hash != stated["task_hash"]:
        return
    one = Judged(task, tuple(stated["held_out"]), stated["spec"])
    found = judged_task(
        before, after, removed, one, told["n_random"], told["seed"], told["removed_mlps"],
        repaired=told["repair"] is not None,
    )  # fmt: skip
    for part in _COMPARED:
        if part in found and part in stated:
            for key, value in stated[part].items():
                compare(f"{name}, {part}, {key}", value, found[part][key])


def _same(stated: Any, found: Any) -> bool:
    if isinstance(stated, float) and isinstance(found, (float, int)):
        return math.isclose(stated, found, rel_tol=RELATIVE, abs_tol=1e-6)
    if stated is None and isinstance(found, float):  # NaN in JSON
        return math.isnan(found)
    return stated == found


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:16]
