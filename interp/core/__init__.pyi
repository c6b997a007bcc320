from . import resources
from .errors import (
    CheckError,
    InterpError,
    LoadError,
    NonFiniteError,
    OptionError,
    PromptError,
    StatisticsError,
    StoreError,
    UnknownName,
    UnreadableAttention,
)
from .head import Head
from .prompts import Prompts, repeats
from .registry import ATTRIBUTION_METHODS, CIRCUIT_METHODS, METRICS
from .result import Result
from .result_rows import ResultRows
from .table import HeadTable

__all__ = [
    "ATTRIBUTION_METHODS",
    "CIRCUIT_METHODS",
    "METRICS",
    "CheckError",
    "Head",
    "HeadTable",
    "InterpError",
    "LoadError",
    "NonFiniteError",
    "OptionError",
    "PromptError",
    "Prompts",
    "Result",
    "ResultRows",
    "StatisticsError",
    "StoreError",
    "UnknownName",
    "UnreadableAttention",
    "repeats",
    "resources",
]
