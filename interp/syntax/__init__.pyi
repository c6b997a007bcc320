from .attention import WordAttention, WordReading, word_attention
from .conllu import read_conllu
from .pairs import MinimalPair, PairCheck, check_pairs, read_pairs
from .result import Relation, Trees, TreeScores
from .search import dependency_trees
from .treebank import Sentence, Treebank

__all__ = [
    "MinimalPair",
    "PairCheck",
    "Relation",
    "Sentence",
    "TreeScores",
    "Treebank",
    "Trees",
    "WordAttention",
    "WordReading",
    "check_pairs",
    "dependency_trees",
    "read_conllu",
    "read_pairs",
    "word_attention",
]
