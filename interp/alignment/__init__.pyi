from .directions import both_directions
from .latency import average_lagging, wait_k_delays
from .made import made_sentence_pairs
from .measure import word_alignment
from .over_time import attention_drift, source_mass
from .pair_file import SentencePair, read_sentence_pairs
from .pairs import encode_pairs
from .pictures import pair_alignment
from .recordings import Utterance, read_recordings
from .sound_pictures import spectrogram_attention
from .speech import time_alignment
from .time_result import heads_of_row
from .translation import rank_agreement, translation_heads
from .word_times import word_time_errors, word_times

__all__ = [
    "SentencePair",
    "Utterance",
    "attention_drift",
    "average_lagging",
    "both_directions",
    "encode_pairs",
    "heads_of_row",
    "made_sentence_pairs",
    "pair_alignment",
    "rank_agreement",
    "read_recordings",
    "read_sentence_pairs",
    "source_mass",
    "spectrogram_attention",
    "time_alignment",
    "translation_heads",
    "wait_k_delays",
    "word_alignment",
    "word_time_errors",
    "word_times",
]
