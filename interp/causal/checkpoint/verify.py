"""Verification of a certificate: everything it states is computed again and compared."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from interp.causal.checkpoint.certificate import (
    CERTIFICATE,
    TEXT,
    Judged,
    certificate_text,
    hashes_of_files,
    judged_task,
)
from interp.causal.checkpoint.choose import Removed, heads_from_names, require_same_model
from interp.causal.checkpoint.mlps import RemovedMlp, removed_mlps
from interp.causal.checkpoint.modelling import KEY
from interp.causal.checkpoint.probe import (
    comparison_inputs,
    gated_edits,
    output_difference,
    sizes,
    speed,
    tolerance,
)
from interp.causal.checkpoint.save import no_means, without_parts
from interp.causal.checkpoint.schema import FORMAT, require_schema
from interp.causal.checkpoint.statements import NotChecked, compare_statements, statement_text
from interp.causal.task import Task
from interp.causal.task_file import make_task
from interp.core.documents import parse_json
from interp.core.errors import InterpError, LoadError, OptionError, StoreError
from interp.core.files import read_bytes
from interp.core.json_document import stored_document
from interp.model.content import saved_tensors
from interp.model.load import load

if TYPE_CHECKING:
    from interp.model.model import Model

_LABEL = "a label that nothing is computed from"
_RECORD = "a record of the machine and the time of writing"
_ORIGINAL = "it needs the original"


@dataclass(frozen=True)
class Verification:
    """Outcome of the verification of a certificate.

    Args:
        folder: the checkpoint.
        differences: statements that do not hold, with both numbers; empty if all hold.
        not_checked: statements that could not be computed again, with the reason.
        checked: number of statements that were compared.
        tasks: number of tasks whose values were computed again.
        tokens_per_second: speed measured now, which is not compared.
    """

    folder: Path
    differences: tuple[str, ...]
    not_checked: tuple[str, ...]
    checked: int
    tasks: int
    tokens_per_second: Mapping[str, float]

    @property
    def holds(self) -> bool:
        """Every statement that was compared holds, and at least one task is among them."""
        return not self.differences and self.tasks > 0

    def __repr__(self) -> str:
        outcome = f"{len(self.differences)} statements differ"
        if not self.differences:
            outcome = (
                "holds"
                if self.tasks
                else (
                    "nothing differs, but no task was computed again: nothing says what the "
                    "removal costs"
                )
            )
        lines = [f"{self.folder}: {outcome} ({self.checked} statements computed again)"]
        lines += [f"  differs: {x}" for x in self.differences]
        lines += [f"  not checked: {x}" for x in self.not_checked]
        if self.tokens_per_second:
            rates = ", ".join(f"{k} {v:,.0f}" for k, v in self.tokens_per_second.items())
            lines.append(f"  tokens per second now, not compared: {rates}")
        return "\n".join(lines)


def verify_certificate(
    folder: str | os.PathLike,
    *,
    original: Model | str | None = None,
    tasks: Sequence[Task] = (),
    trust_remote_code: bool = False,
) -> Verification:
    """Compute the statements of a certificate again, and list those that differ.

    Every value of the certificate is compared or named as not checked. Numbers may differ by 0.1 %,
    since processors round differently; files, hashes and weights must be equal.

    Args:
        folder: a checkpoint that `save_pruned` wrote.
        original: the original model; by default it is loaded from where it was.
        tasks: tasks that were made in Python, which the certificate cannot make again.
        trust_remote_code: run the modelling file of a compact checkpoint.

    Raises:
        StoreError: there is no certificate, it cannot be read, or a field is missing, unknown or of
            another type.
        LoadError: the checkpoint cannot be loaded, or needs trust.
        OptionError: the original that is given has another hash.
    """
    path = Path(folder)
    stated = _read(path / CERTIFICATE)
    after = load(path, trust_remote_code=trust_remote_code)
    before = _original(stated, original)
    checking = _Checking(stated, path, after, before)
    computed = checking.computed(tasks, original is not None, trust_remote_code)
    differences, missing = checking.differences, []
    if not stated["tasks"]:
        missing.append("tasks: none is stated, so nothing says what the removal costs")
    counted = compare_statements(stated, computed, "", differences, missing)
    pace = (
        {"after": after} if isinstance(before, NotChecked) else {"before": before, "after": after}
    )
    measured = speed(pace, comparison_inputs(after, 0)) if after.takes_text else {}
    n_tasks = sum(isinstance(task, dict) for task in computed["tasks"])
    return Verification(path, tuple(differences), tuple(missing), counted, n_tasks, measured)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = stored_document(read_bytes(path))
        require_schema(document)
    except ValueError as error:
        raise StoreError(f"{path} is not a certificate, or is damaged: {error}") from error
    return document


def _original(values: Mapping[str, Any], given: Model | str | None) -> Any:
    stated = values["original"]
    if given is not None and not isinstance(given, str):
        require_same_model(given, stated["content_hash"], "the removed heads")
        return given
    try:
        model = load(given or values["source"], revision=stated["revision"])
    except LoadError as error:
        if given is not None:
            raise
        return NotChecked(f"{_ORIGINAL}: {error}")
    require_same_model(model, stated["content_hash"], "the removed heads")
    return model


class _Checking:
    """Computes a certificate again, from what it says was removed and on which tasks."""

    def __init__(self, values: dict[str, Any], folder: Path, after: Model, before: Any) -> None:
        self.certificate, self.folder, self.after, self.before = values, folder, after, before
        self.trained = values["repair"] is not None
        self.differences: list[str] = []
        self.removed: Removed = {}

    def computed(self, tasks: Sequence[Task], given: bool, trust: bool) -> dict[str, Any]:
        """Return the certificate with the values of now, and `NotChecked` where there is none."""
        stated, before = self.certificate, self.before
        values = self._removal() | {
            "format": FORMAT,
            "seed": stated["seed"],
            "n_random": stated["n_random"],
            "chosen": NotChecked("how the heads were chosen is not repeated"),
            "source": NotChecked("another original was given") if given else stated["source"],
            "repair": NotChecked("the training is not repeated") if self.trained else None,
            "original": self._about_original(),
            "content_hash": self.after.content_hash,
            "tokens_per_second": NotChecked(_RECORD),
            "files": hashes_of_files(self.folder),
            "versions": NotChecked(_RECORD),
        }
        weights = sorted(self.folder.glob("*.safetensors"))
        size_before = before if isinstance(before, NotChecked) else sizes(before)
        values["size"] = {"before": size_before, "after": sizes(self.after, weights)}
        values["tasks"] = [
            failed
            if isinstance(failed := values["kind"], NotChecked) and failed != before
            else self._task(each, tasks, trust)
            for each in stated["tasks"]
        ]
        if not any("random" in each for each in values["tasks"] if isinstance(each, dict)):
            values["seed"] = values["n_random"] = NotChecked("no random set was drawn again")
        self._same_text()
        return values

    def _about_original(self) -> Any:
        if isinstance(self.before, NotChecked):
            return self.before
        return {
            "name": NotChecked(_LABEL),
            "revision": NotChecked("the hash of the weights is compared instead"),
            "class": type(self.before.module).__name__,
            "dtype": str(self.before.dtype).removeprefix("torch."),
            "content_hash": self.before.content_hash,
        }

    def _removal(self) -> dict[str, Any]:
        """Return the statements about what was removed and how, from the removal done again."""
        stated, before = self.certificate, self.before
        names = ("form", "kind", "means", "mlp_means", "notes", "removed", "removed_mlps")
        unknown = (*names, "means_hash", "logits")
        if isinstance(before, NotChecked):
            return dict.fromkeys(unknown, before)
        try:
            self.removed = heads_from_names(before, stated["removed"], stated["removed_mlps"])
            mlps = removed_mlps(before, stated["removed_mlps"])
            means = no_means(before, mlps) if stated["kind"] == "mean" else None
            slim, of_mlps = without_parts(before, self.removed, mlps, means, stated["form"])
        except (OptionError, ValueError) as error:
            self.differences.append(f"removed: it cannot be done again: {error}")
            return dict.fromkeys(unknown, NotChecked("the removal cannot be done again"))
        statements: dict[str, Any] = {name: stated[name] for name in names}
        statements |= {"form": self._form(), "means": slim.means, "mlp_means": of_mlps}
        statements |= {"notes": list(slim.notes), "means_hash": None}
        if slim.means == "folded" and stated["means_hash"] is not None:
            statements["means_hash"] = NotChecked("the prompts of the means are not stored")
        self._compare_weights(slim.module, folded="folded" in (slim.means, of_mlps))
        if self.trained:
            why = "the weights were trained, so only their shapes are compared"
            statements["removed"] = statements["removed_mlps"] = NotChecked(why)
        statements["logits"] = self._outputs(mlps, folded="folded" in (slim.means, of_mlps))
        return statements

    def _form(self) -> str:
        """Return the form that the config shows, where the stated one does not fit it."""
        config = parse_json(read_bytes(self.folder / "config.json"))
        stated = self.certificate["form"]
        if (KEY in config) == (stated == "compact"):
            return stated
        return "compact" if KEY in config else "smaller or zeroed"

    def _compare_weights(self, made: Any, folded: bool) -> None:
        """Compare the checkpoint with the removal done again: shapes always, values if exact."""
        wanted, there = (dict(saved_tensors(x)) for x in (made, self.after.module))
        wrong = sorted(
            name
            for name in {*wanted, *there}
            if name not in wanted or name not in there or wanted[name].shape != there[name].shape
        )
        exact = [] if self.trained or wrong else sorted(wanted)
        wrong += [
            name
            for name in exact
            if not (folded and name.endswith(".bias"))
            and not torch.equal(wanted[name].cpu(), there[name].cpu())
        ]
        if wrong:
            self.differences.append(
                f"removed: {wrong[0]} is not that of the original without the removed parts"
                f" ({len(wrong)} tensors differ)"
            )

    def _outputs(self, mlps: Sequence[RemovedMlp], folded: bool) -> Any:
        reported, before = self.certificate["logits"], self.before
        allowed = tolerance(before)
        if reported["difference"] > allowed:
            stated = f"{reported['difference']:.2g}, allowed {allowed:.2g}"
            self.differences.append(f"logits: the certificate states a difference of {stated}")
        why = "rounding, which differs between machines; only compared with what is allowed"
        if folded:
            why = "outputs: the means of the removed parts are only in the biases"
        elif self.trained:
            why = "outputs: the weights were trained, which is not repeated"
        elif not before.takes_text:
            why = "outputs: the model reads no tokens"
        else:
            inputs = comparison_inputs(before, self.certificate["seed"])
            edits = gated_edits(self.removed, None)
            difference = output_difference(before, self.after, inputs, edits, mlps)
            if not difference <= allowed:
                self.differences.append(
                    f"outputs: they differ from the ablated model by {difference:.2g}, allowed "
                    f"{allowed:.2g}"
                )
        return {"difference": NotChecked(why), "allowed": allowed}

    def _task(self, stated: Mapping[str, Any], tasks: Sequence[Task], trust: bool) -> Any:
        """Return the values of a task on its held-out prompts, measured again."""
        certificate = self.certificate
        task = self._stated_task(stated, tasks, trust)
        if isinstance(task, NotChecked):
            return task
        judged = Judged(task, tuple(stated["held_out"]), stated["spec"])
        no_original = isinstance(self.before, NotChecked)
        values = judged_task(
            None if no_original else self.before,
            self.after,
            self.removed,
            judged,
            certificate["n_random"],
            certificate["seed"],
            certificate["removed_mlps"],
            repaired=self.trained,
        )
        if no_original:  # why it could not be loaded stands in place of what is measured with it
            needs_original = ("before", "change", "unrepaired", "random")
            values |= {part: self.before for part in needs_original if part in stated}
        return values

    def _stated_task(self, stated: Mapping[str, Any], tasks: Sequence[Task], trust: bool) -> Any:
        """Return the task if its prompts and held-out ones are as stated, else `NotChecked`."""
        name, task = stated["task"], self._made_again(stated, tasks, trust)
        if isinstance(task, NotChecked):
            return task
        held_out, n = stated["held_out"], len(task)
        if task.hash != stated["task_hash"]:
            was = statement_text(stated["task_hash"])
            self.differences.append(f"{name}: certificate {was}, the prompts now {task.hash[:16]}")
            return NotChecked("its prompts are others")
        if not held_out or len({*held_out}) < len(held_out) or max(held_out) >= n:
            self.differences.append(f"{name}: held_out does not name different ones of {n} prompts")
            return NotChecked("its held-out prompts do not exist")
        return task

    def _made_again(self, stated: Mapping[str, Any], tasks: Sequence[Task], trust: bool) -> Any:
        """Return the task made from its stated source, or the given one with the stated hash."""
        name, spec = stated["task"], stated["spec"]
        if not spec:
            task = next((t for t in tasks if t.hash == stated["task_hash"]), None)
            return task or NotChecked(f"{name} was made in Python; give it with tasks=")
        if Path(spec["source"]).suffix == ".py" and not trust:
            return NotChecked(f"{spec['source']} is a program; trust_remote_code runs it")
        try:
            model = self.after if isinstance(self.before, NotChecked) else self.before
            return make_task(model, **spec)
        except OSError as error:
            return NotChecked(f"{name} cannot be made again: {error}")
        except InterpError as error:
            self.differences.append(f"{name}: it cannot be made again: {error}")
            return NotChecked("it cannot be made again")

    def _same_text(self) -> None:
        """Compare the sentences beside the certificate with it."""
        try:
            text = read_bytes(self.folder / TEXT).decode(errors="replace")
        except StoreError as error:
            self.differences.append(f"{TEXT}: {error}")
        else:
            if text != certificate_text(self.certificate) + "\n":
                self.differences.append(f"{TEXT} does not say what {CERTIFICATE} says")
