"""Rows of heads from the value of every head on every prompt."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.clusters import cluster_summary
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model

SiteValues = Mapping[Site, Float[Tensor, "prompt head"]]


def head_value_columns(
    values: Mapping[str, SiteValues],
    clusters: Sequence[Hashable] | None = None,
) -> tuple[dict[str, list[Any]], Float[np.ndarray, "row prompt"]]:
    """Return columns with one row per metric and head, and the value of each row on every prompt.

    Scores are means over prompts, and standard errors are over prompts, or over the clusters of
    them that `clusters` labels.
    """
    each = [(metric, s, x) for metric, sites in values.items() for s, x in sites.items()]
    rows = [(m, s, h, x[:, h]) for m, s, x in each for h in range(x.shape[1])]
    arrays = [x.detach().double().cpu().numpy().T for *_, x in each]
    per_prompt = np.concatenate(arrays) if arrays else np.zeros((0, 0))
    summary = [cluster_summary(row[:, None], clusters) for row in per_prompt]
    columns = {
        "stack": [s.stack for _, s, _, _ in rows],
        "layer": [s.layer for _, s, _, _ in rows],
        "head": [h for *_, h, _ in rows],
        "metric": [m for m, *_ in rows],
        "score": [float(x.mean()) for *_, x in rows],
        "sem": [float(x.sem[0]) for x in summary],
        "n": [x.n for x in summary],
    }
    return columns, per_prompt


def by_site(model: Model, found: ResultRows, metric: str | None = None) -> dict[Site, Tensor]:
    """Return the values per prompt of the rows of one metric, `[prompt, head]` by attention."""
    part = found if metric is None else found[metric]
    at: dict[tuple[str, int], list[int]] = {}
    for row, place in enumerate(zip(part.columns["stack"], part.layer.tolist(), strict=True)):
        at.setdefault(place, []).append(row)
    values = torch.from_numpy(np.asarray(part.per_prompt))
    return {model.site(layer, stack): values[rows].T for (stack, layer), rows in at.items()}
