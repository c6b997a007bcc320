from .declaration import AttributionMethod, Scores, attribute, attribution, choose_methods
from .difference import explain_difference
from .evaluation.cost import method_cost
from .evaluation.deceived import deceived
from .evaluation.importance import compare_importance
from .evaluation.plausibility import plausibility
from .evaluation.randomisation import randomisation_check
from .evaluation.rationales import Rationale, read_rationales
from .evaluation.refit import refit_check
from .evaluation.run import faithfulness
from .example import Example
from .learned_weights import learn_head_weights
from .result import Attribution
from .similarity_matrix import similarity_matrix
from .target import similarity

__all__ = [
    "Attribution",
    "AttributionMethod",
    "Example",
    "Rationale",
    "Scores",
    "attribute",
    "attribution",
    "choose_methods",
    "compare_importance",
    "deceived",
    "explain_difference",
    "faithfulness",
    "learn_head_weights",
    "method_cost",
    "plausibility",
    "randomisation_check",
    "read_rationales",
    "refit_check",
    "similarity",
    "similarity_matrix",
]

def __getattr__(name: str) -> AttributionMethod: ...
