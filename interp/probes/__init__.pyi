from .context import last_row_features, lookback_features
from .features import (
    HeadFeatures,
    chunk_features,
    metric_features,
    output_features,
    recorded_features,
)
from .items import read_probe_items
from .saved import HeadProbe, ProbeMismatch
from .training import train_probe

__all__ = [
    "HeadFeatures",
    "HeadProbe",
    "ProbeMismatch",
    "chunk_features",
    "last_row_features",
    "lookback_features",
    "metric_features",
    "output_features",
    "read_probe_items",
    "recorded_features",
    "train_probe",
]
