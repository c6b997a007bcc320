"""Tensors of a checkpoint that the loaded class has no place for: harmless, stated or refused.

Three kinds, by name:

derived   tables that the class computes itself, once saved as buffers (rotary frequencies, position
          numbers, causal masks): nothing is lost, and nothing is said.
of a head a tensor outside the base model, such as the output layer of another task, a pooler, or
          a mask token of pretraining: attention does not see it. Provenance and the screen name it.
the rest  a tensor of the base model itself, such as a layer beyond the config's count or a bias
          that the class does not add: what runs is not the model that was saved. Refused.

What the class itself declares ignorable (`_keys_to_ignore_on_load_unexpected`) never gets here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import nn

from interp.core.errors import LoadError

_DERIVED = re.compile(r"(^|\.)(inv_freq|position_ids|masked_bias|attn\.bias|attention\.bias)$")

_OF_A_HEAD = re.compile(r"(^|\.)(pooler\.|mask_token$|masked_spec_embed$)")


def surplus(module: nn.Module, unexpected: Iterable[str], folder: str) -> tuple[str, ...]:
    """The tensors that belong to a head of another task; those that are derived are left out.

    Raises:
        LoadError: a tensor of the base model that the class has no place for.
    """
    names = sorted(name for name in unexpected if not _derived(name, module))
    inside = [name for name in names if _in_base_model(name, module)]
    if inside:
        raise LoadError(
            f"{folder}: the checkpoint holds {len(inside)} tensors that {type(module).__name__} "
            f"does not use ({', '.join(inside[:3])}{', ...' if len(inside) > 3 else ''}), so what "
            "runs would not be the model that was saved; correct config.json (number of layers, "
            "biases), or take those tensors out of the checkpoint"
        )
    return tuple(names)


def described(names: tuple[str, ...]) -> str:
    """One line on tensors that were left unused."""
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"not used: {len(names)} tensors of another head in the checkpoint ({shown})"


def _derived(name: str, module: nn.Module) -> bool:
    if not _DERIVED.search(name):
        return False
    # GPT-2's `attn.bias` was a causal mask; where the class holds biases so named, it is none
    weight = f"{name.removesuffix('bias')}weight"
    return not (name.endswith(".bias") and weight in module.state_dict())


def _in_base_model(name: str, module: nn.Module) -> bool:
    """True if a tensor lies in the part of the model that its heads share."""
    if _OF_A_HEAD.search(name):
        return False
    prefix = getattr(module, "base_model_prefix", "") or ""
    base = getattr(module, prefix, None) if prefix else None
    with_head = isinstance(base, nn.Module)
    if with_head and name.startswith(f"{prefix}."):
        return True
    # Saved without a head, its tensors carry no prefix; loaded without one, they still may.
    shared = base if with_head else module
    first = name.removeprefix(f"{prefix}.").partition(".")[0]
    return first in shared._modules or first in shared._parameters
