"""Training, scoring, files and profiles of Lorsa layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.core.documents import parse_json
from interp.core.errors import NonFiniteError, OptionError, StoreError
from interp.core.files import read_bytes, write_atomically
from interp.core.json_document import json_document, stored_document
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.dictionaries.activations import FIRST, ROWS, counted_rows
from interp.dictionaries.dictionary import DictionaryMismatch
from interp.dictionaries.lorsa import WEIGHTS, Lorsa, LorsaUnits, rotary_base
from interp.dictionaries.profile import DETECTORS, profile_units
from interp.dictionaries.training import CURVE_FACTS, curve_columns
from interp.model.content import result_provenance
from interp.model.layer_tensors import require_place, run_at, watched_places
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

FORMAT = "interp lorsa 1"
POINTS = 40


@takes_model
def train_lorsa(
    model: Model,
    prompts: Any,
    *,
    layer: int,
    stack: str | None = None,
    n_heads: int | None = None,
    n_qk: int | None = None,
    d_qk: int | None = None,
    k: int = 8,
    steps: int = 400,
    rate: float = 4e-3,
    window: int | None = None,
    rows: int = ROWS,
    batch_size: int = 8,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Train a Lorsa layer to reconstruct the output of an attention layer.

    The number of heads per position falls linearly from all to k over the first half of the steps.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        prompts: texts, ids or `Prompts` to train on.
        layer: the attention layer, which must be causal.
        stack: attention stack, where a layer number is not enough.
        n_heads: number of Lorsa heads; by default the width of the stream.
        n_qk: number of query-key heads; by default four times the heads of the layer, or n_heads
            where that is smaller.
        d_qk: size of queries and keys; by default that of the layer.
        k: heads per position.
        steps: number of steps.
        rate: learning rate of Adam; it falls to 0 over the last fifth of the steps.
        window: number of keys back that a query sees, where the layer has one.
        rows: most positions that are held in memory; later prompts are left out.
        batch_size: prompts per step.
        seed: seed of initial weights and of the order.
        progress: see `Progress`.

    Returns:
        One row per recorded step: step, loss, k (heads per position), score (explained variance of
        that step's batch) and n, the prompts of a batch. Objects, which files do not hold: lorsa,
        the trained layer, and untrained, the one that training began with, with the final k.

    Raises:
        OptionError: the layer is not causal, or numbers do not fit.
        NonFiniteError: training diverges; nothing is written.

    Unit: explained variance of a batch, along the steps.

    Cost: One forward pass of the prompts, and `steps` steps on the layer.

    Null: the untrained layer; see `score_lorsa`.

    Not for: heads of a bidirectional layer, or positions that are neither learned nor rotary.

    Reference: He et al. 2025, "Towards Understanding the Nature of Attention with Low-Rank Sparse
    Decomposition" (arXiv 2504.20938).
    """
    site = model.site(layer, stack)
    if not site.causal:
        raise OptionError(f"{site.name} is not causal; Lorsa layers are")
    for name in ("attn_in", "attn_out"):
        require_place(name, site)
    tokenized = Prompts.of(prompts, model)
    tokenized.check(model)
    heads = model.d_model if n_heads is None else n_heads
    shared = min(heads, 4 * site.n_heads) if n_qk is None else n_qk
    size = site.d_head if d_qk is None else d_qk
    if min(heads, shared, size, k, steps, batch_size) < 1 or k > heads or heads % shared:
        raise OptionError(
            f"n_heads={heads}, n_qk={shared}, d_qk={size}, k={k}, steps={steps}: all at least 1, k "
            "at most n_heads, and n_heads a multiple of n_qk"
        )
    held = _held(model, tokenized, site, batch_size, rows)
    scale_in, scale_out, mean = _scales(held)
    generator = torch.Generator().manual_seed(seed)
    start = _initial(model.d_model, heads, shared, size, mean * scale_out, generator)
    fixed: dict[str, Any] = {
        "layer": site.layer,
        "stack": site.stack,
        "rotary": rotary_base(model),
        "window": window,
        "model": {"name": model.name, "hash": model.content_hash},
    }
    options = {
        "layer": layer,
        "n_heads": heads,
        "n_qk": shared,
        "d_qk": size,
        "k": k,
        "steps": steps,
        "rate": rate,
        "window": window,
        "batch_size": batch_size,
        "seed": seed,
        "positions_held": sum(int(counted.sum()) for *_, counted in held),
    }
    untrained = _unscaled(Lorsa(**start, k=k, **fixed), scale_in, scale_out)
    with torch.enable_grad():
        weights = {name: x.clone().requires_grad_() for name, x in start.items()}
        curve = _descend(
            Lorsa(**weights, k=k, **fixed),
            held,
            (scale_in, scale_out),
            steps,
            rate,
            seed,
            model.name,
            progress,
        )
    trained = Lorsa(**{name: x.detach() for name, x in weights.items()}, k=k, **fixed)
    provenance = result_provenance(model, "interp.dictionaries.train_lorsa", tokenized, **options)
    objects = {"lorsa": _unscaled(trained, scale_in, scale_out), "untrained": untrained}
    return ResultRows(
        "LorsaTraining",
        curve_columns(curve, batch_size),
        ("step",),
        provenance,
        {**CURVE_FACTS, "trained": repr(objects["lorsa"])},
        why_no_per_prompt="a step is a batch of prompts",
        objects=objects,
    )


HeldBatches = list[tuple[Tensor, Tensor, Tensor]]


def _held(model: Model, prompts: Prompts, site: Site, batch_size: int, rows: int) -> HeldBatches:
    """Return input, output and counted positions of batches, until `rows` positions are held."""
    batches: HeldBatches = []
    total = 0
    for batch in model.batches(prompts, batch_size):
        if total >= rows:
            break
        seen: dict[str, Tensor] = {}

        def keeper(name: str, seen: dict[str, Tensor] = seen):
            def keep(x: Tensor) -> None:
                seen[name] = x.float().cpu()

            return keep

        _, real = run_at(
            model, batch, site, {n: keeper(n) for n in ("attn_in", "attn_out")}, last=1
        )
        counted = counted_rows(real, FIRST).cpu()
        total += int(counted.sum())
        batches.append((seen["attn_in"], seen["attn_out"], counted))
    return batches


def _scales(held: HeldBatches) -> tuple[float, float, Tensor]:
    """Return factors to a mean squared norm of the width, and the mean output."""
    x = torch.cat([x[counted] for x, _, counted in held])
    y = torch.cat([y[counted] for _, y, counted in held])
    sizes = [float(v.square().sum(1).mean()) for v in (x, y)]
    if not len(x) or not all(math.isfinite(s) and s > 0 for s in sizes):
        raise NonFiniteError("the attention layer's input or output is all 0 or not finite")
    return (x.shape[1] / sizes[0]) ** 0.5, (y.shape[1] / sizes[1]) ** 0.5, y.mean(0)


def _initial(
    width: int, heads: int, shared: int, size: int, mean: Tensor, generator: torch.Generator
) -> dict[str, Tensor]:
    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    out = draw(heads, width)
    return {
        "W_Q": draw(shared, width, size) * width**-0.5,
        "W_K": draw(shared, width, size) * width**-0.5,
        "W_V": draw(heads, width) * width**-0.5,
        "W_O": out / out.norm(dim=1, keepdim=True),
        "b_Q": torch.zeros(shared, size),
        "b_K": torch.zeros(shared, size),
        "b_V": torch.zeros(heads),
        "b_O": mean.clone(),
    }


def _descend(
    lorsa: Lorsa,
    held: HeldBatches,
    scales: tuple[float, float],
    steps: int,
    rate: float,
    seed: int,
    name: str,
    progress: Progress | None,
) -> dict[str, list[float]]:
    adam = torch.optim.Adam([getattr(lorsa, w) for w in WEIGHTS], lr=rate)
    rng = np.random.default_rng(seed)
    curve: dict[str, list[float]] = {n: [] for n in ("step", "loss", "explained_variance", "k")}
    order: list[int] = []
    for step in range(1, steps + 1):
        order = order or rng.permutation(len(held)).tolist()
        x, y, counted = held[order.pop()]
        share = min(1.0, step / max(1, steps // 2))
        k = round(lorsa.n_heads + (lorsa.k - lorsa.n_heads) * share)
        for group in adam.param_groups:
            group["lr"] = rate * min(1.0, (steps - step + 1) / max(1, steps // 5))
        wanted = (y * scales[1])[counted]
        predicted = lorsa(x * scales[0], k)[counted]
        loss = (predicted - wanted).square().sum(1).mean() / wanted.shape[1]
        if not bool(torch.isfinite(loss)):
            raise NonFiniteError(
                f"{name}: training of the Lorsa layer diverges at step {step}; give a lower rate"
            )
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % max(1, steps // POINTS) == 0 or step == steps:
            rest = float((predicted - wanted).detach().double().square().sum())
            total = float((wanted - wanted.mean(0)).double().square().sum())
            point = (step, float(loss.detach()), 1 - rest / max(total, 1e-30), k)
            for key, value in zip(curve, point, strict=True):
                curve[key].append(float(value))
            if progress is not None:
                progress("Lorsa", step, steps)
    return curve


def _unscaled(lorsa: Lorsa, scale_in: float, scale_out: float) -> Lorsa:
    """Return the layer on activations that are not scaled."""
    return replace(
        lorsa,
        W_Q=lorsa.W_Q * scale_in,
        W_K=lorsa.W_K * scale_in,
        W_V=lorsa.W_V * scale_in,
        W_O=lorsa.W_O / scale_out,
        b_O=lorsa.b_O / scale_out,
    )


@takes_model
def profile_lorsa(
    model: Model,
    lorsa: Lorsa,
    prompts: Any,
    metrics: Iterable[Any] = DETECTORS,
    *,
    batch_size: int = 8,
    seed: int = 0,
) -> ResultRows:
    """Score Lorsa heads by the detectors of heads, at the positions where they are among the k.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        lorsa: the layer.
        prompts: texts, ids or `Prompts`, not those that it was trained on.
        metrics: detectors by name or declaration.
        batch_size: prompts per forward pass.
        seed: seed of the shuffling.

    Raises:
        DictionaryMismatch: the layer belongs to another model.
        OptionError: a metric is not a detector.
    """
    site = lorsa_site(model, lorsa)
    now: dict[str, Tensor] = {}

    def keep(x: Tensor) -> None:
        now["x"] = x.float()

    tokenized = Prompts.of(prompts, model)
    units = LorsaUnits(lorsa, lambda: now["x"])
    with watched_places(model, site, {"attn_in": keep}):
        return profile_units(
            model,
            site,
            units,
            tokenized,
            metrics,
            batch_size=batch_size,
            seed=seed,
            made_by="interp.dictionaries.profile_lorsa",
        )


def lorsa_site(model: Model, lorsa: Lorsa) -> Site:
    """Return the attention layer of a model that a Lorsa layer stands for."""
    sites = {(s.stack, s.layer): s for s in model.sites}
    site = sites.get((lorsa.stack, lorsa.layer))
    if site is None or lorsa.W_V.shape[1] != model.d_model:
        raise DictionaryMismatch(
            f"{lorsa!r} reads {lorsa.W_V.shape[1]} entries of {lorsa.stack}.{lorsa.layer}, which "
            f"{model.name} does not have"
        )
    mine = lorsa.model.get("hash")
    if mine and mine != model.content_hash:
        raise DictionaryMismatch(
            f"{lorsa!r} was trained on {lorsa.model.get('name')} ({str(mine)[:12]}), and the "
            f"weights of {model.name} ({model.content_hash[:12]}) differ; train it again"
        )
    return site


def save_lorsa(lorsa: Lorsa, path: str | Path) -> None:
    """Write a Lorsa layer as one safetensors file.

    Raises:
        StoreError: the file cannot be written.
    """
    from safetensors.torch import save

    about = {f.name: getattr(lorsa, f.name) for f in fields(lorsa) if f.name not in WEIGHTS}
    about = {"format": FORMAT} | about | {"model": dict(lorsa.model)}
    tensors = {name: getattr(lorsa, name).detach().contiguous() for name in WEIGHTS}
    about["weights"] = _digests(tensors)
    notes = {"interp": json_document(about).decode()}
    write_atomically(Path(path), save(tensors, metadata=notes))


def _digests(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {n: sha256(x.contiguous().numpy().tobytes()).hexdigest() for n, x in tensors.items()}


def load_lorsa(path: str | Path) -> Lorsa:
    """Read a Lorsa layer.

    Raises:
        StoreError: the file cannot be read, or does not hold a Lorsa layer.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = read_bytes(Path(path))
    try:
        tensors = load(content)
        size = int.from_bytes(content[:8], "little")
        about = stored_document(parse_json(content[8 : 8 + size])["__metadata__"]["interp"])
        if about.pop("format") != FORMAT:
            raise ValueError("another format")
        if about.pop("weights") != _digests(tensors):
            raise ValueError("its weights were changed after it was written")
        return Lorsa(**{name: tensors[name] for name in WEIGHTS}, **about)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} does not hold a Lorsa layer ({error}); train it again") from error


def lorsa_training_summary(found: ResultRows) -> str:
    """Return the trained layer, and the last step of its curve."""
    return (
        f"{found.trained}\n  after {found.step[-1]:.0f} steps, on the last training "
        f"batch: explained variance {found.score[-1]:.3f}, {found.k[-1]:.0f} heads per position"
    )


present("LorsaTraining", summary=lorsa_training_summary)
