"""The modelling file of the compact form, which loads without `interp`."""

from __future__ import annotations

from typing import Any

FILE = "modeling_pruned.py"
KEY = "compact_sizes"
_CODE = '''"""{base} without some of its attention heads; the sizes are in config.{key}."""

import torch
from torch import nn
from transformers import {base}


class {name}({base}):
    """The model with matrices of other sizes; nothing else differs."""

    def __init__(self, config, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        for name, shape in config.{key}["shapes"].items():
            owner, _, key = name.rpartition(".")
            owner = self.get_submodule(owner)
            like = owner.weight if getattr(owner, key) is None else getattr(owner, key)
            new = torch.empty(shape, dtype=like.dtype, device=like.device)
            setattr(owner, key, nn.Parameter(new))
        for name, values in config.{key}["attributes"].items():
            for key, value in values.items():
                setattr(self.get_submodule(name), key, value)
'''
_AUTO = (
    "AutoModelForCausalLM",
    "AutoModelForMaskedLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForSequenceClassification",
    "AutoModelForImageClassification",
    "AutoModelForSpeechSeq2Seq",
    "AutoModel",
)


def class_name(module: Any) -> str:
    """Return the name of the class in the modelling file."""
    return f"Pruned{type(module).__name__}"


def modelling_code(module: Any) -> str:
    """Return the text of the modelling file."""
    return _CODE.format(base=type(module).__name__, name=class_name(module), key=KEY)


def auto_class(module: Any) -> str:
    """Return the name of the Auto class that loads this kind of model."""
    import transformers

    for name in _AUTO:
        known = getattr(transformers, name)._model_mapping.get(type(module.config), ())
        if type(module) in (known if isinstance(known, tuple) else (known,)):
            return name
    return "AutoModel"
