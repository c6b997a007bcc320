from .categories._files import read_labelled_texts
from .categories._made import topic_texts
from .categories._texts import LabelledText, Span
from .conllu import read_conllu
from .own_labels import category_scores
from .pairs import MinimalPair, check_pairs, read_pairs
from .search import dependency_trees
from .topic_embeddings import topic_products

__all__ = [
    "LabelledText",
    "MinimalPair",
    "Span",
    "category_scores",
    "check_pairs",
    "dependency_trees",
    "read_conllu",
    "read_labelled_texts",
    "read_pairs",
    "topic_products",
    "topic_texts",
]
