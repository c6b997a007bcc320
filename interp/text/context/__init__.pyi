from .answer import answer_sources
from .documents import sentence_documents
from .judge import judge_sources
from .judgement import stated_and_observed
from .order import ordered, passage_order, place_preference

__all__ = [
    "answer_sources",
    "judge_sources",
    "ordered",
    "passage_order",
    "place_preference",
    "sentence_documents",
    "stated_and_observed",
]
