from .calls.map_call import MapCall
from .check import check_model
from .edits import gate, mean, resample, set_z
from .key_edits import reweight, set_targets
from .mixers.mixer import Mixer, register_mixer
from .pattern_edits import set_pattern, uniform
from .policy import Action
from .recorded.reading import RecordedActivations
from .sources.packages import Held
from .spans import segment_spans

__all__ = [
    "Action",
    "Held",
    "MapCall",
    "Mixer",
    "RecordedActivations",
    "check_model",
    "gate",
    "mean",
    "register_mixer",
    "resample",
    "reweight",
    "segment_spans",
    "set_pattern",
    "set_targets",
    "set_z",
    "uniform",
]
