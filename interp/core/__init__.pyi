from . import resources
from .errors import (
    CheckError,
    LoadError,
    NonFiniteError,
    OptionError,
    PromptError,
    StatisticsError,
    StoreError,
    UnknownName,
    UnreadableAttention,
)
from .registry import METRICS
from .result_rows import ResultRows

__all__ = [
    "METRICS",
    "CheckError",
    "LoadError",
    "NonFiniteError",
    "OptionError",
    "PromptError",
    "ResultRows",
    "StatisticsError",
    "StoreError",
    "UnknownName",
    "UnreadableAttention",
    "resources",
]
