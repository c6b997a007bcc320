from .context import last_row_features, lookback_features
from .features import HeadFeatures, chunk_features, metric_features, output_features
from .items import read_probe_items
from .saved import HeadProbe
from .training import train_probe

__all__ = [
    "HeadFeatures",
    "HeadProbe",
    "chunk_features",
    "last_row_features",
    "lookback_features",
    "metric_features",
    "output_features",
    "read_probe_items",
    "train_probe",
]
