"""interp: declare a head behaviour once, and score it on any model, with its error and baseline.

    source            a hub id, a folder, a Hugging Face model object, a bundled or planted model
      |
      v
    1 Model           the only thing that knows architectures; standard names, run, capture, edit
      |
      v
    2 capture         what one forward pass leaves behind: tensors, or reductions of the pattern
      |
      v
    3 analysis        one declared function per file: heads/ weights/ ...
      |
      v
    4 HeadTable       model, stack, layer, head, metric, score, sem, n, null + provenance
      |
      v
    5 plot 6 report 7 store        figures, one self-contained page, Parquet

Arrows only run down this list. Importing `interp` imports neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.core.errors import InterpError
    from interp.core.head import Head
    from interp.core.prompts import Prompts
    from interp.core.table import HeadTable
    from interp.heads.declaration import detector
    from interp.heads.scoring import score
    from interp.model.capture import ActivationCache
    from interp.model.check import check_model
    from interp.model.edits import Edit, gate, mean, resample, set_pattern, set_z, uniform, zero
    from interp.model.load import load
    from interp.model.model import Model

__version__ = "0.1.0"

_WHERE = {
    "ActivationCache": "interp.model.capture",
    "Edit": "interp.model.edits",
    "Head": "interp.core.head",
    "HeadTable": "interp.core.table",
    "InterpError": "interp.core.errors",
    "Model": "interp.model.model",
    "Prompts": "interp.core.prompts",
    "check_model": "interp.model.check",
    "detector": "interp.heads.declaration",
    "gate": "interp.model.edits",
    "load": "interp.model.load",
    "mean": "interp.model.edits",
    "resample": "interp.model.edits",
    "score": "interp.heads.scoring",
    "set_pattern": "interp.model.edits",
    "set_z": "interp.model.edits",
    "uniform": "interp.model.edits",
    "zero": "interp.model.edits",
}

__all__ = [
    "ActivationCache",
    "Edit",
    "Head",
    "HeadTable",
    "InterpError",
    "Model",
    "Prompts",
    "check_model",
    "detector",
    "gate",
    "load",
    "mean",
    "resample",
    "score",
    "set_pattern",
    "set_z",
    "uniform",
    "zero",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'interp' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
