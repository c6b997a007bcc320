"""Loss of a task when the heads of each layer share a few directions of the residual stream."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.checkpoint.indices import axis_of, plain_linear
from interp.causal.game.game import Game
from interp.causal.importance import mean_columns
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.model.calls.sites import Site, circuit_sites
from interp.model.content import model_provenance
from interp.model.load import load
from interp.model.locate.find_layout import layouts
from interp.model.locate.layout import ReadMatrix
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def tucker_loss(
    model: Model,
    task: Task,
    *,
    shares: Sequence[float] = (0.75, 0.5, 0.25),
    seed: int = 0,
) -> ResultRows:
    """Measure a task after the heads of each layer are cut to shared directions of the stream.

    The weights of a layer (W_Q, W_K, W_V and W_O of all heads) are a tensor whose first axis is the
    residual stream. Its factor matrix along this axis is shared by all heads (higher-order SVD);
    only its leading columns stay, so that all heads of the layer read and write within them.

    Args:
        model: The model; a copy is changed.
        task: The task to measure.
        shares: Shares of d_model that stay.
        seed: Seed of the random directions of the null.

    Returns:
        One row per share, with the columns share (of the directions of the stream that stay), rank
        (their number in each layer), kept (share of the squared weights that stays, over all
        layers), score (loss against the whole model, positive is worse, mean over prompts) with sem
        and 95 % interval, and null (the score with as many random directions).

    Raises:
        OptionError: A share is not in (0, 1], or the weights of a layer are not plain matrices.

    Unit: of the task.

    Cost: Two copies of the model and two forward passes per share and prompt.

    Null: as many random directions in each layer.

    Not for: compression as in the paper, which also truncates the axes of d_head and of the four
    matrices, and finds that tasks can improve; or reading a large loss as proof that no cheaper
    representation exists.

    Reference: Gu et al. 2025, "TensorLLM: Tensorising Multi-Head Attention for Enhanced Reasoning
    and Compression in LLMs" (arXiv 2501.15674).
    """
    if not shares or not all(0 < share <= 1 for share in shares):
        raise OptionError(f"shares={tuple(shares)}: give shares of d_model in (0, 1]")
    sites = circuit_sites(model.sites)
    factors = {site: factor_of(model, site) for site in sites}
    clean, worse = _value(model, task), -task.sign
    ranks = [max(1, round(share * model.d_model)) for share in shares]
    lost, null, kept = [], [], []
    for rank in ranks:
        bases = {site: u[:, :rank] for site, (u, _) in factors.items()}
        lost.append(worse * (_value(_cut(model, bases), task) - clean))
        energy = [(s[:rank].sum(), s.sum()) for _, s in factors.values()]
        kept.append(float(sum(a for a, _ in energy) / sum(b for _, b in energy)))
        drawn = torch.Generator().manual_seed(seed)
        bases = {
            site: torch.linalg.qr(torch.randn(u.shape, generator=drawn, dtype=torch.double))
            .Q[:, :rank]
            .to(u)
            for site, (u, _) in factors.items()
        }
        null.append(float((worse * (_value(_cut(model, bases), task) - clean)).mean()))
    provenance = model_provenance(model) | Game(model, task, check=False).about()
    provenance |= {
        "made_by": "interp.causal.tucker_loss",
        "seed": seed,
        "clean": float(clean.mean()),
    }
    values = np.stack(lost)
    columns = {"share": shares, "rank": ranks, "kept": kept, **mean_columns(values, task.clusters)}
    return ResultRows(
        "TuckerLoss",
        columns | {"null": null},
        ("share",),
        provenance,
        {"metric": "tucker_loss", "unit": task.unit, "n": values.shape[1]},
        values,
        clusters=task.clusters,
    )


def factor_of(model: Model, site: Site) -> tuple[Float[Tensor, "d_model d_model"], Tensor]:
    """Return the shared directions of a layer, largest first, and the squared weights on each."""
    w = model.weights_of(site)
    groups = site.n_heads // site.n_kv_heads
    parts = [w.W_Q, w.W_K.repeat_interleave(groups, 0), w.W_V.repeat_interleave(groups, 0)]
    columns = torch.cat([*parts, w.W_O.mT], -1).double().transpose(0, 1).flatten(1).cpu()
    values, vectors = torch.linalg.eigh(columns @ columns.mT)
    return vectors.flip(-1), values.flip(-1).clamp_min(0)


def _cut(model: Model, bases: Mapping[Site, Float[Tensor, "d_model rank"]]) -> Model:
    """Return a copy whose heads read and write within the directions of their layer."""
    module: Any = copy.deepcopy(model.module)
    for site, basis in bases.items():
        layout = layouts(model).sites[site]
        read = [r.module for r in (layout.q, layout.k, layout.v) if isinstance(r, ReadMatrix)]
        plain = all(plain_linear(module.get_submodule(name)) for name in read)
        if len(read) < 3 or not plain or site.projection is None:
            raise OptionError(
                f"{model.name}: the queries, keys and values of {site.name} are not plain matrices "
                "of one input; this model cannot be cut to shared directions"
            )
        sides = dict.fromkeys(read, "in") | {site.projection: "out"}
        for name, side in sides.items():
            part = module.get_submodule(name)
            weight = part.weight.data
            within = (basis @ basis.mT).to(weight)
            axis = axis_of(part, side)
            part.weight.data.copy_((within @ weight) if axis == 0 else (weight @ within))
    return load(module, name=model.name)


def _value(model: Model, task: Task) -> Float[np.ndarray, " prompt"]:
    return Game(model, task, check=False).clean.double().cpu().numpy()


def tucker_loss_summary(found: ResultRows) -> str:
    """Return the loss by share of the directions kept."""
    cells = zip(found.share, found.score, found.null, strict=True)
    losses = [f"{share:g}: {score:.3g} (random {null:.3g})" for share, score, null in cells]
    return f"TuckerLoss({', '.join(losses)} {found.unit})"


present("TuckerLoss", summary=tucker_loss_summary)
