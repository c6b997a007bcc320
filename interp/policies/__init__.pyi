from .alignatt import AlignAtt
from .cad import cad
from .decore import decore
from .edatt import EDAtt
from .simultaneous import simultaneous

__all__ = [
    "AlignAtt",
    "EDAtt",
    "cad",
    "decore",
    "simultaneous",
]
