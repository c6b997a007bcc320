import interp.core.declaration

from . import needle, outliers
from .causal_check.check import confirm
from .causal_check.result import Confirmation
from .estimate import Estimate, choose_engine, estimate
from .scoring import score
from .weights._composition import Compositions, composition_scores

__all__ = [
    "Compositions",
    "Confirmation",
    "Estimate",
    "choose_engine",
    "composition_scores",
    "confirm",
    "estimate",
    "needle",
    "outliers",
    "score",
]

def __getattr__(name: str) -> interp.core.declaration.Analysis: ...
