from .making import command
from .name_types import (
    ATTRIBUTION_NAMES,
    CIRCUIT_METHOD_NAME,
    METRIC_NAME,
    METRIC_NAMES,
    MODEL_NAME,
)
from .run import Input, Run
from .vocabulary import Spelling

__all__ = [
    "ATTRIBUTION_NAMES",
    "CIRCUIT_METHOD_NAME",
    "METRIC_NAME",
    "METRIC_NAMES",
    "MODEL_NAME",
    "Input",
    "Run",
    "Spelling",
    "command",
]
