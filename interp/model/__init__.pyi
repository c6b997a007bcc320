from .calls.map_call import MapCall
from .check import check_model
from .edits import gate, mean, resample, set_pattern, set_z, uniform
from .mixers.mixer import Mixer, register_mixer
from .recorded.reading import RecordedActivations
from .sources.packages import Held
from .spans import segment_spans

__all__ = [
    "Held",
    "MapCall",
    "Mixer",
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
]
