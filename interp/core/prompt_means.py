"""Means over prompts of any named quantities, with cluster errors, nulls and paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_summary, numbered, score_columns
from interp.core.errors import OptionError
from interp.core.result_rows import ResultRows
from interp.core.statistics import RANDOM_FLIPS, holm, sign_flip_p

Array = np.ndarray


def prompt_means(
    about: Sequence[Mapping[str, Any]],
    units: Sequence[str],
    per_prompt: Float[Array, "row prompt"],
    nulls: Float[Array, "row prompt"] | None = None,
    *,
    clusters: Sequence[str] | None = None,
    notes: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> ResultRows:
    """Return the means over prompts, with p values against their nulls.

    A prompt without a value (NaN) is left out of its row.
    """
    import pandas as pd

    values = np.asarray(per_prompt, dtype=np.float64)
    empty = dict.fromkeys(["metric", *units, "score", "sem", "n", "clusters", "unit"])
    columns = pd.DataFrame([dict(one) for one in about], columns=None if about else [*empty])
    arrays = {}
    labels = None if clusters is None else tuple(clusters)
    if labels is not None and len(labels) != values.shape[1]:
        raise OptionError(
            f"{len(labels)} clusters for {values.shape[1]} prompts; give one label per prompt"
        )
    if nulls is not None:
        p = np.array([paired_p(x, clusters) for x in values - nulls])
        names = [one.get("metric", "") for one in about]
        columns = columns.assign(p=p, p_holm=holm(p, names))
        arrays["nulls"] = nulls
    columns = columns.assign(**score_columns(values, labels))
    if nulls is not None:
        columns["null"] = [float(cluster_summary(x[:, None]).score[0]) for x in nulls]
    facts = {"notes": notes or {}}
    return ResultRows(
        "PromptMeans",
        columns,
        tuple(units),
        provenance or {},
        facts,
        values,
        arrays=arrays,
        clusters=labels,
    )


def paired_p(
    apart: Float[Array, " prompt"],
    clusters: Sequence[str] | None = None,
    *,
    flips: int = RANDOM_FLIPS,
    seed: int = 0,
) -> float:
    """Return the sign-flip p value of a mean difference, with one sign for each whole cluster."""
    there = ~np.isnan(apart)
    if clusters is None:
        return sign_flip_p(apart[there], flips=flips, seed=seed)
    labels = [label for label, one in zip(clusters, there, strict=True) if one]
    sums = np.zeros(len(set(labels)))
    np.add.at(sums, numbered(len(labels), labels), apart[there])
    return sign_flip_p(sums, flips=flips, seed=seed)
