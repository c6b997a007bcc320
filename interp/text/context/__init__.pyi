from .answer import answer_sources
from .documents import sentence_documents
from .endpoint import Endpoint, endpoint_faithfulness, endpoint_sources
from .judge import judge_sources
from .judgement import stated_and_observed
from .order import passage_order

__all__ = [
    "Endpoint",
    "answer_sources",
    "endpoint_faithfulness",
    "endpoint_sources",
    "judge_sources",
    "passage_order",
    "sentence_documents",
    "stated_and_observed",
]
