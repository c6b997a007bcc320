from .attention import Reading, WordAttention, word_attention
from .conllu import read_conllu
from .pairs import Pair, PairCheck, check_pairs, read_pairs
from .result import Relation, Trees, TreeScores
from .search import dependency_trees
from .treebank import Sentence, Treebank

__all__ = [
    "Pair",
    "PairCheck",
    "Reading",
    "Relation",
    "Sentence",
    "TreeScores",
    "Treebank",
    "Trees",
    "WordAttention",
    "check_pairs",
    "dependency_trees",
    "read_conllu",
    "read_pairs",
    "word_attention",
]
