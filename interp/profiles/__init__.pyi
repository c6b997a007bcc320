from .changes import compare_profiles
from .corpus import DocumentCorpus
from .headvis import write_headvis
from .headvis_read import HeadVisTree, read_headvis
from .on_prompt import PromptRules
from .portability import portability
from .result import Profile
from .rules import KeyRule, declared_rules
from .run import profile

__all__ = [
    "DocumentCorpus",
    "HeadVisTree",
    "KeyRule",
    "Profile",
    "PromptRules",
    "compare_profiles",
    "declared_rules",
    "portability",
    "profile",
    "read_headvis",
    "write_headvis",
]
