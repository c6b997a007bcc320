from .changes import compare_profiles
from .headvis import write_headvis
from .headvis_read import read_headvis
from .portability import portability
from .result import Profile

__all__ = [
    "Profile",
    "compare_profiles",
    "portability",
    "read_headvis",
    "write_headvis",
]
