from .directions import both_directions
from .latency import (
    average_lagging,
    average_proportion,
    differentiable_average_lagging,
    length_adaptive_average_lagging,
    wait_k_delays,
)
from .links import alignment_error_rate
from .made import made_sentence_pairs
from .measure import word_alignment
from .pair_file import SentencePair, parse_links, read_sentence_pairs
from .pairs import encode_pairs
from .pictures import pair_alignment
from .recordings import Utterance, read_recordings
from .result import HeadAlignments
from .sound_pictures import spectrogram_attention
from .speech import time_alignment
from .time_result import heads_of_row
from .translation import rank_agreement, translation_heads
from .warping import token_frames
from .word_times import word_time_errors, word_times

__all__ = [
    "HeadAlignments",
    "SentencePair",
    "Utterance",
    "alignment_error_rate",
    "average_lagging",
    "average_proportion",
    "both_directions",
    "differentiable_average_lagging",
    "encode_pairs",
    "heads_of_row",
    "length_adaptive_average_lagging",
    "made_sentence_pairs",
    "pair_alignment",
    "parse_links",
    "rank_agreement",
    "read_recordings",
    "read_sentence_pairs",
    "spectrogram_attention",
    "time_alignment",
    "token_frames",
    "translation_heads",
    "wait_k_delays",
    "word_alignment",
    "word_time_errors",
    "word_times",
]
