from .changes import compare_profiles
from .corpus import DocumentCorpus
from .on_prompt import PromptRules
from .portability import portability
from .result import Profile
from .rules import KeyRule, declared_rules
from .run import profile

__all__ = [
    "DocumentCorpus",
    "KeyRule",
    "Profile",
    "PromptRules",
    "compare_profiles",
    "declared_rules",
    "portability",
    "profile",
]
