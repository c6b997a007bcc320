from . import tasks
from .contrast import ContrastTask
from .declaration import Discovery, Found, discovery
from .edge_evaluation import EdgeEvaluation, evaluate_edges
from .evaluation import evaluate, evaluate_circuit
from .find import find_circuit
from .head_evaluation import Evaluation
from .patched import Patched, patch_first
from .path_patching import PathEffects, path_patching
from .position_map import PatchingMap, patching_map
from .published import Published, published
from .published_comparison import PublishedComparison
from .query_key_signals import Signals, signals
from .result import Circuit
from .set_evaluation import SetEvaluation, evaluate_set
from .smallest import smallest_set
from .tasks import TASKS, make_contrast

__all__ = [
    "TASKS",
    "Circuit",
    "ContrastTask",
    "Discovery",
    "EdgeEvaluation",
    "Evaluation",
    "Found",
    "Patched",
    "PatchingMap",
    "PathEffects",
    "Published",
    "PublishedComparison",
    "SetEvaluation",
    "Signals",
    "discovery",
    "evaluate",
    "evaluate_circuit",
    "evaluate_edges",
    "evaluate_set",
    "find_circuit",
    "make_contrast",
    "patch_first",
    "patching_map",
    "path_patching",
    "published",
    "signals",
    "smallest_set",
    "tasks",
]

def __getattr__(name: str) -> Discovery: ...
