from .loading import Loading, loaded, loading_options
from .name_types import (
    ATTRIBUTION_NAMES,
    CIRCUIT_METHOD_NAME,
    METRIC_NAME,
    METRIC_NAMES,
    MODEL_NAME,
)

__all__ = [
    "ATTRIBUTION_NAMES",
    "CIRCUIT_METHOD_NAME",
    "METRIC_NAME",
    "METRIC_NAMES",
    "MODEL_NAME",
    "Loading",
    "loaded",
    "loading_options",
]
