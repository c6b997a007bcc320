"""Call a model on given tensors and take the one output that everything is compared by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from interp.core.errors import PromptError
from interp.model.hooks.inference import inference
from interp.model.inputs import context_length, takes
from interp.model.memory import ran_out

# In this order: what a model is trained to give, else its last states.
_OUTPUTS = ("logits", "logits_per_image", "last_hidden_state", "pooler_output", "image_embeds")


def forward(module: nn.Module, inputs: Mapping[str, Any], name: str) -> Tensor:
    """Logits, or the last hidden state of a model without a head; without a cache.

    Raises:
        PromptError: an argument the model does not take, a mask that hides every key, or a prompt
            beyond the context of a model that breaks there.
    """
    known = takes(module)
    unknown = [k for k in inputs if k not in known]
    if unknown and "kwargs" not in known:
        raise PromptError(f"{name} takes no {', '.join(unknown)}; it takes {sorted(known)}")
    for key, x in inputs.items():
        if isinstance(x, Tensor) and key.endswith("attention_mask") and x.dim() == 2:
            hidden = (x == 0).all(-1).nonzero()
            if len(hidden):
                raise PromptError(
                    f"{key} hides every key of prompt {int(hidden[0])}; keep at least one token"
                )
    options = {"use_cache": False} if "use_cache" in known and "use_cache" not in inputs else {}
    with inference(module):
        out = _called(module, dict(inputs) | options, name)
    for key in _OUTPUTS:
        value = getattr(out, key, None)
        if isinstance(value, Tensor):
            return value
    return out if isinstance(out, Tensor) else out[0]


def _called(module: nn.Module, given: dict[str, Any], name: str) -> Any:
    ids, context = given.get("input_ids"), context_length(module)
    try:
        return module(**given)
    except (IndexError, RuntimeError) as error:
        length = 0 if ids is None else ids.shape[-1]
        if context is None or length <= context or ran_out(error):
            raise
        raise PromptError(
            f"a prompt has {length} tokens; {name} was made for {context} and does not run beyond "
            f"them ({error})"
        ) from error
