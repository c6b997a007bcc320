from .corpus import DocumentCorpus
from .portability import portability
from .result import Profile
from .rules import KeyRule, declared_rules
from .run import profile

__all__ = ["DocumentCorpus", "KeyRule", "Profile", "declared_rules", "portability", "profile"]
