from .answer import answer_sources
from .documents import sentence_documents
from .judge import judge_sources
from .judgement import SourceJudgement

__all__ = [
    "SourceJudgement",
    "answer_sources",
    "judge_sources",
    "sentence_documents",
]
