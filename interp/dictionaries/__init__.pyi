from .cards import feature_cards
from .core_metrics import explained_variance, score_dictionary
from .dictionary import Dictionary, DictionaryMismatch
from .explained_attention import difference_of_kinds, means_by_kind, monosemanticity
from .feature_effects import ablate_features
from .folder import load_dictionary, save_dictionary
from .lorsa import Lorsa
from .lorsa_metrics import score_lorsa
from .lorsa_training import load_lorsa, profile_lorsa, save_lorsa, train_lorsa
from .matching import match_features
from .profile import profile_heads, score_features
from .sparse_probing import probe_features
from .training import train_dictionary

__all__ = [
    "Dictionary",
    "DictionaryMismatch",
    "Lorsa",
    "ablate_features",
    "difference_of_kinds",
    "explained_variance",
    "feature_cards",
    "load_dictionary",
    "load_lorsa",
    "match_features",
    "means_by_kind",
    "monosemanticity",
    "probe_features",
    "profile_heads",
    "profile_lorsa",
    "save_dictionary",
    "save_lorsa",
    "score_dictionary",
    "score_features",
    "score_lorsa",
    "train_dictionary",
    "train_lorsa",
]
