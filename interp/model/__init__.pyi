from .calls.map_call import MapCall
from .capture import ActivationCache
from .check import check_model
from .edits import Edit, gate, mean, resample, set_pattern, set_z, uniform, zero
from .generation import Generation
from .mixers.mixer import Mixer, register_mixer
from .model import Model
from .recorded.reading import RecordedActivations
from .sources.packages import Held
from .spans import segment_spans

__all__ = [
    "ActivationCache",
    "Edit",
    "Generation",
    "Held",
    "MapCall",
    "Mixer",
    "Model",
    "RecordedActivations",
    "check_model",
    "gate",
    "mean",
    "register_mixer",
    "resample",
    "segment_spans",
    "set_pattern",
    "set_z",
    "uniform",
    "zero",
]
