from .making import command
from .run import Input, Run
from .vocabulary import Spelling

__all__ = [
    "Input",
    "Run",
    "Spelling",
    "command",
]
