"""Learning curves, with what was trained and what training began with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interp.core.result_rows import ResultRows


def curve_rows(
    kind: str,
    curve: Mapping[str, Sequence[float]],
    n: int,
    why: str,
    objects: Mapping[str, Any],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per recorded step, whose score is the explained variance of its batch.

    Args:
        kind: the kind of the result.
        curve: by name, the values at each recorded step.
        n: rows or prompts of a batch.
        why: why there are no values per prompt.
        objects: what was trained, and what training began with.
        made: the provenance.
    """
    columns = {name: list(values) for name, values in curve.items()}
    columns["score"] = columns.pop("explained_variance")
    facts = {"metric": "explained_variance", "unit": "share of the variance of a batch"}
    return ResultRows(
        kind, columns | {"sem": np.nan, "n": n}, ("step",), made, facts, why_no_per_prompt=why,
        objects=objects,
    )  # fmt: skip
