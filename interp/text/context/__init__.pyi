from .answer import answer_sources
from .documents import sentence_documents
from .judge import judge_sources
from .judgement import stated_and_observed
from .order import passage_order

__all__ = [
    "answer_sources",
    "judge_sources",
    "passage_order",
    "sentence_documents",
    "stated_and_observed",
]
