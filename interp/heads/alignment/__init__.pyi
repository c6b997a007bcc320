from .directions import BothDirections, both_directions
from .measure import word_alignment
from .pair_file import SentencePair, parse_links, read_sentence_pairs
from .pairs import EncodedPairs, encode_pairs
from .result import HeadAlignments
from .translation import TranslationHeads, translation_heads

__all__ = [
    "BothDirections",
    "EncodedPairs",
    "HeadAlignments",
    "SentencePair",
    "TranslationHeads",
    "both_directions",
    "encode_pairs",
    "parse_links",
    "read_sentence_pairs",
    "translation_heads",
    "word_alignment",
]
