from .attention import word_attention
from .categories._files import read_labelled_texts
from .categories._made import code_documents, people_texts, topic_texts
from .categories._texts import LabelledText, Span
from .conllu import read_conllu
from .own_labels import category_scores
from .pairs import MinimalPair, check_pairs, read_pairs
from .result import Trees, TreeScores
from .search import dependency_trees
from .topic_embeddings import topic_products
from .treebank import Sentence, Treebank

__all__ = [
    "LabelledText",
    "MinimalPair",
    "Sentence",
    "Span",
    "TreeScores",
    "Treebank",
    "Trees",
    "category_scores",
    "check_pairs",
    "code_documents",
    "dependency_trees",
    "people_texts",
    "read_conllu",
    "read_labelled_texts",
    "read_pairs",
    "topic_products",
    "topic_texts",
    "word_attention",
]
