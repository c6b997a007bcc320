from .changes import compare_profiles
from .context import context_needed
from .headvis import write_headvis
from .headvis_read import read_headvis
from .judge import judge
from .portability import portability
from .result import Profile

__all__ = [
    "Profile",
    "compare_profiles",
    "context_needed",
    "judge",
    "portability",
    "read_headvis",
    "write_headvis",
]
