from .capture import ActivationCache
from .check import Check, check_model
from .edits import Edit, gate, mean, resample, set_pattern, set_z, uniform, zero
from .generation import Generation
from .model import Model

__all__ = [
    "ActivationCache",
    "Check",
    "Edit",
    "Generation",
    "Model",
    "check_model",
    "gate",
    "mean",
    "resample",
    "set_pattern",
    "set_z",
    "uniform",
    "zero",
]
