"""Results whose rows belong to several metrics, each with its own clusters of prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class MetricRows:
    """Part of a result with a metric in every row and the cluster of each prompt by metric.

    A subclass has the fields `rows`, whose items name a "metric", and `labels`.
    """

    rows: tuple[Mapping[str, Any], ...]
    labels: Mapping[str, tuple[str, ...] | None]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metric labels, in order of appearance."""
        return tuple(dict.fromkeys(row["metric"] for row in self.rows))

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """Cluster of each prompt, in a result of one metric whose prompts share something."""
        clusterings = {self.labels[metric] for metric in self.metrics}
        return clusterings.pop() if len(clusterings) == 1 else None
