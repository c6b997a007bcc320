"""Held-out explained variance of a Lorsa layer beside its untrained control."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.dictionaries.activations import FIRST, counted_rows
from interp.dictionaries.core_metrics import linearised, ratio_columns
from interp.dictionaries.lorsa import Lorsa
from interp.dictionaries.lorsa_training import lorsa_site
from interp.model.content import result_provenance
from interp.model.layer_tensors import run_at
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
UNITS = {
    "explained_variance": "share of the variance",
    "loss_recovered": "share of the rise of the loss under zero ablation",
}


@takes_model
def score_lorsa(
    model: Model, lorsa: Lorsa | ResultRows, prompts: Any, *, batch_size: int = 8
) -> ResultRows:
    """Measure a Lorsa layer on held-out prompts, beside the untrained one.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        lorsa: the layer, or the result of its training, whose untrained layer is the control.
        prompts: texts, ids or `Prompts` that it was not trained on.
        batch_size: prompts per forward pass.

    Returns:
        One row per layer and metric: layer_kind ("trained" or "untrained"), metric, score (a ratio
        of sums over positions), sem, null (the score of the untrained layer; NaN without one), n
        and unit. `per_prompt` is linearised, so that its mean is the score.

    Raises:
        DictionaryMismatch: the layer belongs to another model.

    Unit: explained_variance is 1 - E|y - y'|² / E|y - E y|², in float64; loss_recovered is (loss
        with zeros - loss with the layer) / (loss with zeros - loss).

    Cost: Three forward passes of the prompts, and one for the control.

    Null: the untrained layer with as many heads per position.

    Not for: whether heads do what the model's heads do; compare `profile_lorsa`.

    Reference: He et al. 2025 (arXiv 2504.20938), whose code divides by the variance of the
    reconstruction; here it is that of the output.
    """
    layers = (
        {"trained": lorsa}
        if isinstance(lorsa, Lorsa)
        else {"trained": lorsa.lorsa, "untrained": lorsa.untrained}
    )
    site = lorsa_site(model, layers["trained"])
    tokenized = Prompts.of(prompts, model)
    measured: list[dict[str, Array]] = []
    ys, kepts, errors = [], [], {name: [] for name in layers}
    for batch in model.batches(tokenized, batch_size):
        seen: dict[str, Tensor] = {}

        def keeper(name: str, seen: dict[str, Tensor] = seen):
            def keep(x: Tensor) -> None:
                seen[name] = x.clone()

            return keep

        logits, real = run_at(model, batch, site, {n: keeper(n) for n in ("attn_in", "attn_out")})
        counted = counted_rows(real, FIRST)
        y = seen["attn_out"]
        sums = {"clean": _loss(batch, logits, counted)}
        others = {"zero": torch.zeros_like(y)}
        with torch.no_grad():
            others |= {n: each(seen["attn_in"].float().cpu()).to(y) for n, each in layers.items()}
        for name, value in others.items():
            whole = torch.where(counted[..., None], value, y)
            logits, _ = run_at(model, batch, site, {"attn_out": lambda _, w=whole: w})
            sums[name] = _loss(batch, logits, counted)
            if name in layers:
                errors[name].append((whole - y).double().square().sum(-1).sum(1).cpu().numpy())
        measured.append(sums)
        ys.append(y.double())
        kepts.append(counted)
    rows = sum(float(k.sum()) for k in kepts)
    mean = torch.stack([y[k].sum(0) for y, k in zip(ys, kepts, strict=True)]).sum(0) / rows
    variance = np.concatenate(
        [
            ((y - mean).square().sum(-1) * k).sum(1).cpu().numpy()
            for y, k in zip(ys, kepts, strict=True)
        ]
    )
    loss = {name: np.concatenate([m[name] for m in measured]) for name in measured[0]}
    lines = []
    for name in layers:
        ev = linearised(variance - np.concatenate(errors[name]), variance)
        back = linearised(loss["zero"] - loss[name], loss["zero"] - loss["clean"])
        lines += [(name, "explained_variance", *ev), (name, "loss_recovered", *back)]
    provenance = result_provenance(
        model, "interp.dictionaries.score_lorsa", tokenized, lorsa=repr(layers["trained"])
    )
    columns = ratio_columns("layer_kind", lines, "untrained", UNITS, tokenized.clusters)
    return ResultRows(
        "LorsaScores",
        columns,
        ("layer_kind",),
        provenance,
        {},
        np.stack([x[3] for x in lines]),
        clusters=tokenized.clusters,
    )


def _loss(batch: Prompts, logits: Tensor, kept: Tensor) -> Array:
    """Return the summed loss per prompt of the tokens after counted positions."""
    ids, real = batch.padded()
    ids, real = ids.to(logits.device), real.to(logits.device)
    nats = -logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])[..., 0].double()
    return (nats * (kept[:, :-1] & real[:, 1:])).sum(1).cpu().numpy()


def lorsa_scores_summary(found: ResultRows) -> str:
    """Return the scores of the layer and of the untrained one."""
    lines = [f"Lorsa layer on {found.per_prompt.shape[1]} held-out prompts"]
    for x in found:
        lines.append(
            f"  {x['layer_kind']} {x['metric']}: {x['score']:.3f} [{x['low']:.3f}, {x['high']:.3f}]"
        )
    return "\n".join(lines)


present("LorsaScores", summary=lorsa_scores_summary)
