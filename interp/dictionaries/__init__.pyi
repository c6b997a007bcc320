from .core_metrics import DictionaryScores, explained_variance, score_dictionary
from .dictionary import Dictionary, DictionaryMismatch
from .folder import load_dictionary, save_dictionary
from .training import train_dictionary
from .training_result import DictionaryTraining

__all__ = [
    "Dictionary",
    "DictionaryMismatch",
    "DictionaryScores",
    "DictionaryTraining",
    "explained_variance",
    "load_dictionary",
    "save_dictionary",
    "score_dictionary",
    "train_dictionary",
]
