"""Classification of checkpoint tensors that the loaded class does not use.

There are three kinds, by name:

derived   tables that the class computes itself and older versions saved as buffers (rotary
          frequencies, position ids, causal masks): no information is lost; not reported.
of a head a tensor outside the base model, such as the output layer of another task, a pooler, or
          a mask token of pretraining: attention does not depend on it. Listed in provenance and
          in the output.
the rest  a tensor of the base model, such as a layer beyond the config's count or a bias that the
          class does not add: the model that runs differs from the saved one. Refused.

Tensors that the class itself declares ignorable (`_keys_to_ignore_on_load_unexpected`) are not
passed to this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import nn

from interp.core.errors import LoadError

_DERIVED = re.compile(r"(^|\.)(inv_freq|position_ids|masked_bias|attn\.bias|attention\.bias)$")

_OF_A_HEAD = re.compile(r"(^|\.)(pooler\.|mask_token$|masked_spec_embed$)")


def surplus(module: nn.Module, unexpected: Iterable[str], folder: str) -> tuple[str, ...]:
    """Return the unused tensors that belong to a head of another task, without derived ones."""
    names = sorted(name for name in unexpected if not _derived(name, module))
    inside = [name for name in names if _in_base_model(name, module)]
    if inside:
        raise LoadError(
            f"{folder}: the checkpoint holds {len(inside)} tensors that {type(module).__name__} "
            f"does not use ({', '.join(inside[:3])}{', ...' if len(inside) > 3 else ''}), so what "
            "runs would not be the model that was saved; correct config.json (number of layers, "
            "biases), or remove those tensors from the checkpoint"
        )
    return tuple(names)


def described(names: tuple[str, ...]) -> str:
    """Describe unused tensors in one line."""
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"not used: {len(names)} tensors of another head in the checkpoint ({shown})"


def _derived(name: str, module: nn.Module) -> bool:
    if not _DERIVED.search(name):
        return False
    # GPT-2's `attn.bias` was a causal mask, unless the class has biases of this name
    weight = f"{name.removesuffix('bias')}weight"
    return not (name.endswith(".bias") and weight in dict(module.named_parameters()))


def _in_base_model(name: str, module: nn.Module) -> bool:
    """Return True if a tensor lies in the part of the model that task heads share."""
    if _OF_A_HEAD.search(name):
        return False
    prefix = getattr(module, "base_model_prefix", "") or ""
    base = getattr(module, prefix, None) if prefix else None
    with_head = isinstance(base, nn.Module)
    if with_head and name.startswith(f"{prefix}."):
        return True
    # A model saved without a head has no prefix; one loaded without a head may still have it.
    shared = base if with_head else module
    first = name.removeprefix(f"{prefix}.").partition(".")[0]
    return first in shared._modules or first in shared._parameters
