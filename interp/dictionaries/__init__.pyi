from .cards import feature_cards
from .core_metrics import score_dictionary
from .explained_attention import monosemanticity
from .feature_effects import ablate_features
from .folder import load_dictionary, save_dictionary
from .lorsa_metrics import score_lorsa
from .lorsa_training import load_lorsa, profile_lorsa, save_lorsa, train_lorsa
from .profile import profile_heads, score_features
from .sparse_probing import probe_features
from .training import train_dictionary

__all__ = [
    "ablate_features",
    "feature_cards",
    "load_dictionary",
    "load_lorsa",
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
