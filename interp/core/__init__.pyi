from . import resources
from .declaration import (
    Analysis,
    Bound,
    Lab,
    Option,
    Trials,
    detector,
    experiment,
    picture,
    statistic,
    weights,
)
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
from .prompts import Prompts, from_file, repeats
from .registry import catalogue, parse_metric, ranges
from .table import HeadTable

__all__ = [
    "Analysis",
    "Bound",
    "CheckError",
    "Head",
    "HeadTable",
    "InterpError",
    "KeptWarning",
    "Lab",
    "LoadError",
    "NonFiniteError",
    "Option",
    "OptionError",
    "PromptError",
    "Prompts",
    "StatisticsError",
    "StoreError",
    "Trials",
    "UnknownName",
    "UnreadableAttention",
    "catalogue",
    "detector",
    "experiment",
    "from_file",
    "parse_metric",
    "picture",
    "ranges",
    "repeats",
    "resources",
    "statistic",
    "weights",
]
