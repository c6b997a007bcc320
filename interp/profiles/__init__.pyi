from .corpus import Corpus
from .result import Profile
from .rules import Rule, declared_rules
from .run import profile

__all__ = ["Corpus", "Profile", "Rule", "declared_rules", "profile"]
