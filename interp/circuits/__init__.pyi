from . import tasks
from .causal_tracing import causal_tracing
from .contrast import ContrastTask
from .declaration import Discovery, Found, discovery
from .edge_evaluation import evaluate_edges
from .evaluation import evaluate_circuit
from .facts import Fact
from .find import find_circuit
from .head_checks import confirm
from .made_pairs import make_pairs
from .patched import patch_first
from .path_patching import path_patching
from .position_map import patching_map
from .published import published
from .query_key_signals import signals, writer_shares
from .result import Circuit
from .set_evaluation import evaluate_set
from .tasks import make_contrast
from .variables.attributes import attribute_interchanges
from .variables.find import find_variables
from .variables.interchanges import CausalModel
from .why.attribution_graph import attribution_graph
from .why.loadings import head_loadings
from .why.qk_shares import qk_shares
from .why.share_check import check_shares

__all__ = [
    "CausalModel",
    "Circuit",
    "ContrastTask",
    "Discovery",
    "Fact",
    "Found",
    "attribute_interchanges",
    "attribution_graph",
    "causal_tracing",
    "check_shares",
    "confirm",
    "discovery",
    "evaluate_circuit",
    "evaluate_edges",
    "evaluate_set",
    "find_circuit",
    "find_variables",
    "head_loadings",
    "make_contrast",
    "make_pairs",
    "patch_first",
    "patching_map",
    "path_patching",
    "published",
    "qk_shares",
    "signals",
    "tasks",
    "writer_shares",
]

def __getattr__(name: str) -> Discovery: ...
