from .declaration import AttributionMethod, Scores, attribute, attribution
from .difference import explain_difference
from .evaluation.deceived import deceived
from .evaluation.importance import compare_importance
from .evaluation.run import faithfulness
from .example import Example
from .learned_weights import LearnedHeadWeights, learn_head_weights
from .named import choose_methods
from .result import Attribution
from .similarity_matrix import SimilarityMatrix, similarity_matrix
from .target import Target, label, similarity, token_logit

__all__ = [
    "Attribution",
    "AttributionMethod",
    "Example",
    "LearnedHeadWeights",
    "Scores",
    "SimilarityMatrix",
    "Target",
    "attribute",
    "attribution",
    "choose_methods",
    "compare_importance",
    "deceived",
    "explain_difference",
    "faithfulness",
    "label",
    "learn_head_weights",
    "similarity",
    "similarity_matrix",
    "token_logit",
]

def __getattr__(name: str) -> AttributionMethod: ...
