from . import resources
from .declaration import Bound, Declaration
from .errors import (
    CheckError,
    InterpError,
    KeptWarning,
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
from .option import Option
from .prompts import Prompts, from_file, repeats
from .registry import ATTRIBUTION_METHODS, CIRCUIT_METHODS, METRICS, Registry
from .result import Result
from .result_rows import ResultRows
from .table import HeadTable

__all__ = [
    "ATTRIBUTION_METHODS",
    "CIRCUIT_METHODS",
    "METRICS",
    "Bound",
    "CheckError",
    "Declaration",
    "Head",
    "HeadTable",
    "InterpError",
    "KeptWarning",
    "LoadError",
    "NonFiniteError",
    "Option",
    "OptionError",
    "PromptError",
    "Prompts",
    "Registry",
    "Result",
    "ResultRows",
    "StatisticsError",
    "StoreError",
    "UnknownName",
    "UnreadableAttention",
    "from_file",
    "repeats",
    "resources",
]
