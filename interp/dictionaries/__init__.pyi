from .dictionary import Dictionary, DictionaryMismatch
from .folder import load_dictionary, save_dictionary
from .training import train_dictionary
from .training_result import DictionaryTraining

__all__ = [
    "Dictionary",
    "DictionaryMismatch",
    "DictionaryTraining",
    "load_dictionary",
    "save_dictionary",
    "train_dictionary",
]
