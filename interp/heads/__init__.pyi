from . import needle, outliers, patterns
from .between_models.match import match_heads
from .between_models.quantised import quantised_heads
from .checkpoints.emergence import emergence
from .declaration import Analysis, detector, experiment, measurement, statistic
from .estimate import choose_engine, estimate_score, readable
from .geometry.minference import minference_kinds
from .machine_limits import roofline
from .scoring import score
from .trials import Lab, Trials
from .weights._composition import composition_scores

__all__ = [
    "Analysis",
    "Lab",
    "Trials",
    "choose_engine",
    "composition_scores",
    "detector",
    "emergence",
    "estimate_score",
    "experiment",
    "match_heads",
    "measurement",
    "minference_kinds",
    "needle",
    "outliers",
    "patterns",
    "quantised_heads",
    "readable",
    "roofline",
    "score",
    "statistic",
]

def __getattr__(name: str) -> Analysis: ...
