from .declaration import Method, Scores, attribute, attribution
from .example import Example
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
    "label",
    "similarity",
    "token_logit",
]

def __getattr__(name: str) -> Method: ...
