"""Saving of a model without some heads, as a folder that loads without `interp`.

removed = ranked_heads(model, importance, keep=8, equal=True)
save_pruned(model, removed, "smaller", tasks=[task])
"""

from __future__ import annotations

import copy
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from interp.causal.checkpoint.certificate import (
    CERTIFICATE,
    TEXT,
    Judged,
    certificate_of,
    certificate_text,
)
from interp.causal.checkpoint.choose import (
    Removed,
    checked_removal,
    gated_parts,
    heads_by_name,
)
from interp.causal.checkpoint.forms import (
    FORMS,
    FoldedMeans,
    Slimmed,
    compact,
    smaller,
    zeroed,
)
from interp.causal.checkpoint.indices import require_removable
from interp.causal.checkpoint.mlps import (
    MlpMeans,
    RemovedMlp,
    mlp_means,
    removed_mlps,
    without_mlps,
)
from interp.causal.checkpoint.modelling import FILE, KEY, auto_class, class_name, modelling_code
from interp.causal.checkpoint.probe import (
    comparison_inputs,
    gated_edits,
    output_difference,
    tolerance,
)
from interp.causal.checkpoint.repair import Repaired
from interp.causal.game.interventions import REMOVALS
from interp.causal.gating.result import LearnedGates
from interp.causal.task import Task
from interp.core.documents import parse_json
from interp.core.errors import CheckError, LoadError, OptionError, StoreError, UnknownName
from interp.core.files import cannot_write, write_atomically
from interp.core.json_document import json_document
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.model.load import load
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

_MAKE = {"zeroed": zeroed, "smaller": smaller, "compact": compact}


@dataclass(frozen=True)
class SavedCheckpoint:
    """Checkpoint that was written.

    Args:
        folder: the folder.
        form: "zeroed", "smaller" or "compact".
        certificate: the contents of certificate.json.
    """

    folder: Path
    form: str
    certificate: Mapping[str, Any]

    def __repr__(self) -> str:
        return certificate_text(self.certificate)


@takes_model
def save_pruned(
    model: Model,
    heads: Removed | LearnedGates | Repaired | Sequence[Any],
    folder: str | os.PathLike,
    *,
    mlps: Sequence[str] = (),
    form: Literal["auto", "zeroed", "smaller", "compact"] = "auto",
    kind: Literal["zero", "mean"] = "zero",
    reference: Any = None,
    tasks: Sequence[Task | Judged] = (),
    inputs: Any = None,
    n_random: int = 50,
    seed: int = 0,
    made_with: Mapping[str, Any] | None = None,
    source: str | None = None,
    progress: Progress | None = None,
) -> SavedCheckpoint:
    """Write a checkpoint of the model without some heads, and a certificate beside it.

    The folder is loaded again before it gets its name: its outputs must equal those of the model
    with these heads ablated.

    Args:
        model: the model, which is not changed.
        heads: the heads to remove: names, gates (with their MLPs), or what `ranked_heads`,
            `repair_pruned` or `prune_in_rounds` returns.
        folder: the folder to write, which must not exist.
        mlps: MLPs to remove, such as "L0MLP". "smaller" needs a config with a width per layer, or
            all of them; "compact" removes any.
        form: "smaller": the same class with fewer heads in its config, which needs equally many
            heads in every layer and kv group and a head dimension in the config. "zeroed": full
            size, the heads' weights are zero. "compact": smaller matrices layer by layer, with a
            short modelling file that a user must trust (trust_remote_code=True). "auto": smaller
            if possible, otherwise zeroed.
        kind: "zero", or "mean": what removed heads write on average over `reference` becomes part
            of the output bias; where the family has none, zero is used and the certificate says so.
        reference: prompts for the means; by default those of the first task that are not judged.
        tasks: tasks for the certificate, judged on held-out prompts: the second half, as in
            `learn_gates`, or those named by a `Judged`.
        inputs: prompts or input tensors for the comparison of outputs; random tokens by default.
        n_random: number of random sets for the certificate, which lose as many parts of the same
            unit: heads or whole kv groups in every layer, or whole layers.
        seed: seed of random sets, halves and random tokens.
        made_with: how the heads were chosen, for the certificate.
        source: where the original can be loaded from, by default its name.
        progress: see `Progress`.

    Raises:
        OptionError: the model's weights cannot be changed head by head (quantised, shared between
            layers, ...), the form cannot express the removal, or all or no heads are named.
        StoreError: the folder exists, or cannot be written.
        CheckError: the written checkpoint does not compute what the ablated model computes.

    Unit: the task's.

    Cost: One forward pass per prompt for the model, the checkpoint and every random set.

    Null: random sets that lose as many heads, or whole kv groups, in every layer.

    Not for: choosing the heads: the certificate says what their removal costs on held-out prompts.
    """
    if form != "auto" and form not in FORMS:
        raise UnknownName("form of a checkpoint", form, ("auto", *FORMS))
    if kind not in REMOVALS:
        raise UnknownName("kind of removal", kind, REMOVALS)
    path = Path(folder)
    if path.exists() or path.is_symlink():
        raise StoreError(f"{path} exists already; name a new folder")
    require_removable(model)
    trained = heads if isinstance(heads, Repaired) else None
    if trained is not None and kind == "mean":
        raise OptionError("a repaired model was trained with zeros; use kind='zero'")
    removed, parts = _removed(model, heads, mlps)
    judged = [t if isinstance(t, Judged) else Judged.of(t, seed) for t in tasks]
    means = _means(model, judged, reference, parts) if kind == "mean" else None
    stated = progress or (lambda what, done, total: None)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    probe = comparison_inputs(model, seed) if inputs is None else inputs
    try:
        weights = model if trained is None else trained.model
        written = _first_that_fits(
            weights, removed, parts, means, form, temporary, path.name, probe
        )
        stated("checked", 1, 2)
        about = {
            "form": written.form,
            "kind": kind,
            "means": written.means,
            "mlp_means": written.mlp_means,
            "notes": list(written.notes),
            "seed": seed,
            "n_random": n_random,
            "chosen": dict(made_with or {}),
            "source": source or model.name,
            "repair": None if trained is None else dict(trained.about),
        }
        folded = means.heads if means is not None and written.means == "folded" else None
        certificate = certificate_of(
            model,
            written.after,
            removed,
            temporary,
            judged,
            written.difference,
            folded,
            about,
            [mlp.label for mlp in parts],
        )
        write_atomically(temporary / CERTIFICATE, json_document(certificate))
        text = certificate_text(certificate).encode()
        write_atomically(temporary / TEXT, text + b"\n")
        os.rename(temporary, path)
    except OSError as error:
        raise StoreError(cannot_write(path, error)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    stated("checkpoint", 2, 2)
    return SavedCheckpoint(path, written.form, certificate)


@dataclass(frozen=True, eq=False)
class PartMeans:
    """Mean outputs of heads and MLPs, which biases can hold."""

    heads: FoldedMeans
    mlps: MlpMeans


def no_means(model: Model, mlps: Sequence[RemovedMlp]) -> PartMeans:
    """Return means of zero, to find what a form does with means."""
    heads = {(s.stack, s.layer): torch.zeros(s.n_heads, s.d_v) for s in model.sites}
    return PartMeans(heads, {mlp.label: torch.zeros(model.d_model) for mlp in mlps})


def without_parts(
    model: Model, removed: Removed, mlps: Sequence[RemovedMlp], means: PartMeans | None, form: str
) -> tuple[Slimmed, str]:
    """Return the module without heads and MLPs, and what became of the means of the MLPs."""
    slim = Slimmed(copy.deepcopy(model.module), "none")
    if any(removed.values()):
        slim = _MAKE[form](model, removed, None if means is None else means.heads)
    slim, stated = without_mlps(model, slim, mlps, None if means is None else means.mlps, form)
    old, new = (sum(p.numel() for p in m.parameters()) for m in (model.module, slim.module))
    if form == "compact" and new >= old:
        note = f"compact has {new:,} parameters where the original has {old:,}; zeroed has no more"
        slim = replace(slim, notes=(*slim.notes, note))
    return slim, stated


def _removed(
    model: Model, heads: Any, mlps: Sequence[str]
) -> tuple[Removed, tuple[RemovedMlp, ...]]:
    if isinstance(heads, LearnedGates):
        if mlps:
            raise OptionError("gates name the MLPs to remove; omit mlps=")
        removed, mlps = gated_parts(model, heads)
    elif isinstance(heads, Repaired):
        if mlps:
            raise OptionError("a repaired model names the MLPs to remove; omit mlps=")
        removed, mlps = heads.removed, heads.mlps
    elif isinstance(heads, dict):
        removed = checked_removal(model, heads, mlps)
    elif list(heads) or not mlps:
        removed = heads_by_name(model, heads)
    else:
        removed = checked_removal(model, {}, mlps)
    return removed, removed_mlps(model, mlps)


def _means(
    model: Model, judged: Sequence[Judged], reference: Any, mlps: Sequence[RemovedMlp]
) -> PartMeans:
    gated = [site.name for site in model.sites if site.gated]
    if gated:
        raise OptionError(
            f"{model.name}: {gated[0]} multiplies z by a gate before its output projection, so the "
            "mean of a head cannot be folded; use kind='zero'"
        )
    if reference is None and not judged:
        raise OptionError("kind='mean' needs reference= prompts, or a task to take the mean over")
    prompts = judged[0].other_prompts if reference is None else reference
    if mlps and not isinstance(prompts, Prompts):
        prompts = Prompts.of(prompts, model)
    return PartMeans(model.mean_z(prompts), mlp_means(model, mlps, prompts) if mlps else {})


@dataclass(frozen=True, eq=False)
class _Written:
    form: str
    after: Model
    difference: float
    means: str
    mlp_means: str
    notes: tuple[str, ...]


def _first_that_fits(
    model: Model,
    removed: Removed,
    mlps: Sequence[RemovedMlp],
    means: PartMeans | None,
    form: str,
    folder: Path,
    name: str,
    probe: Any,
) -> _Written:
    """Write the checkpoint in the form, or in the first of "auto" that computes the same."""
    for this in ("smaller", "zeroed") if form == "auto" else (form,):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            return _written(model, removed, mlps, means, this, folder, name, probe)
        except (OptionError, CheckError):
            if this in (form, "zeroed"):
                raise
    raise AssertionError("zeroed returns or raises")


def _written(
    model: Model,
    removed: Removed,
    mlps: Sequence[RemovedMlp],
    means: PartMeans | None,
    form: str,
    folder: Path,
    name: str,
    probe: Any,
) -> _Written:
    from huggingface_hub.errors import StrictDataclassError

    cannot = f"{model.name}: {type(model.module).__name__} has no form {form!r} of this removal"
    try:
        slim, stated = without_parts(model, removed, mlps, means, form)
        _write(model, slim, form, folder)
        after = load(folder, trust_remote_code=form == "compact", name=name, check=False)
    except (
        LoadError,
        AttributeError,
        KeyError,
        ValueError,
        RuntimeError,
        StrictDataclassError,
    ) as error:
        why = str(error.__cause__ or error).splitlines()[0].replace(str(folder), name)
        raise OptionError(f"{cannot} ({why}); choose another form") from error
    folded = means.heads if means is not None and slim.means == "folded" else None
    of_mlps = means.mlps if means is not None and stated == "folded" else None
    difference = output_difference(model, after, probe, gated_edits(removed, folded), mlps, of_mlps)
    if not difference <= tolerance(model):
        raise CheckError(
            f"{cannot}: the checkpoint would differ from the ablated model by {difference:.2g} "
            f"(allowed {tolerance(model):.2g}); choose another form"
        )
    return _Written(form, after, difference, slim.means, stated, slim.notes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress bar of `save_pretrained`."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _write(model: Model, slim: Slimmed, form: str, folder: Path) -> None:
    with _quiet():
        slim.module.save_pretrained(folder)
    if not list(folder.glob("*.safetensors")):
        raise StoreError(f"{folder.name}: no safetensors file was written")
    if model.tokenizer is not None and hasattr(model.tokenizer, "save_pretrained"):
        model.tokenizer.save_pretrained(folder)
    if form == "compact":
        file = folder / "config.json"
        config = parse_json(file.read_text(encoding="utf-8"))
        name = class_name(model.module)
        config |= {"architectures": [name], KEY: slim.changed}
        config["auto_map"] = {auto_class(model.module): f"{Path(FILE).stem}.{name}"}
        write_atomically(file, json.dumps(config, indent=2).encode())
        write_atomically(folder / FILE, modelling_code(model.module).encode())


present(
    SavedCheckpoint,
    text="interp.report.printed.importance:checkpoint_text",
    rows="interp.report.printed.importance:checkpoint_rows",
)
