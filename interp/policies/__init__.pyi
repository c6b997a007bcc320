from .contrast import cad, decore
from .reading import AlignAtt, EDAtt
from .simultaneous import simultaneous

__all__ = [
    "AlignAtt",
    "EDAtt",
    "cad",
    "decore",
    "simultaneous",
]
