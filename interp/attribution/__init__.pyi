from .declaration import Method, Scores, attribute, attribution
from .evaluation.deceived import deceived
from .evaluation.run import faithfulness
from .example import Example
from .named import choose
from .result import Attribution
from .target import Target, label, similarity, token_logit

__all__ = [
    "Attribution",
    "Example",
    "Method",
    "Scores",
    "Target",
    "attribute",
    "attribution",
    "choose",
    "deceived",
    "faithfulness",
    "label",
    "similarity",
    "token_logit",
]

def __getattr__(name: str) -> Method: ...
