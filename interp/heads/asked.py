"""The metrics that a caller asks for: by name, declared, or as plain functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from interp.core.registry import METRICS
from interp.heads.declaration import Analysis, BoundAnalysis, declared_metric

Metric = str | Analysis | BoundAnalysis | Callable[..., Any]
"""A name with its options (`"local_window:width=8"`), an analysis, or a detector's function."""


def bound(metric: Metric) -> BoundAnalysis:
    """A metric with its options, from any way of naming it.

    Raises:
        UnknownName: there is no metric of that name.
        OptionError: an object that is no metric, or a function that cannot be a detector.
    """
    if isinstance(metric, str):
        return METRICS.parse(metric)
    return metric if isinstance(metric, BoundAnalysis) else declared_metric(metric).bind()


def asked_metrics(metrics: Metric | Iterable[Metric] | None) -> list[BoundAnalysis] | None:
    """One metric or several; None where none is named. Raises what `bound` raises."""
    if metrics is None:
        return None
    if isinstance(metrics, Iterable) and not isinstance(metrics, (str, Analysis, BoundAnalysis)):
        return [bound(metric) for metric in metrics]
    return [bound(metrics)]
