"""Value of the target when tokens are hidden from the attention of all other tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError, UnreadableAttention

if TYPE_CHECKING:
    from interp.attribution.example import Example
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site

Array = np.ndarray
_ROUNDING = 1e-4  # of the sum of a row of weights
_LITTLE = 1e-20  # of a row that is left


def values_hidden(
    example: Example, gone: Bool[Array, "variant source"], batch_size: int = 16
) -> Float[Array, " variant"]:
    """Compute the target's value with the marked sources of each variant hidden as keys.

    A hidden token is seen by itself only, in every layer whose keys are the sources.
    """
    if batch_size < 1:
        raise OptionError(f"batch size {batch_size} is too small; it must be at least 1")
    values = []
    for start in range(0, len(gone), batch_size):
        part = torch.from_numpy(np.ascontiguousarray(gone[start : start + batch_size]))
        inputs = {
            k: v.expand(len(part), *v.shape[1:]) if isinstance(v, Tensor) else v
            for k, v in example.inputs.items()
        }

        def visit(site: Site, call: Call, real: Tensor, part: Tensor = part) -> None:
            if site.stack == "decoder" and "cross" in example.model.stacks:
                return  # its keys are tokens of the decoder
            if call.v.shape[2] != len(example) or len(call.z) != len(part):
                raise UnreadableAttention(
                    f"{site.name} does not attend to the {len(example)} tokens of the input; use "
                    "how='mean'"
                )
            hidden = part.to(call.z.device)[:, None, None, :]
            if site.stack != "cross":
                diagonal = torch.eye(len(example), dtype=torch.bool, device=hidden.device)
                hidden = hidden & ~diagonal
            call.z = call.mix(pattern_without(call, site, hidden)).to(call.z.dtype)

        with torch.no_grad(), example.model.visited(visit, stage="mix"):
            values.append(example.read(example.model.run(inputs)).double().cpu())
    return torch.cat(values).numpy() if values else np.empty(0)


def pattern_without(
    call: Call, site: Site, hidden: Bool[Tensor, "batch #head #query_pos key_pos"]
) -> Float[Tensor, "batch head query_pos key_pos"]:
    """Return the pattern that a softmax without the hidden keys gives."""
    pattern = call.pattern()
    total = pattern.sum(-1, keepdim=True)
    if float(pattern.min()) < -_ROUNDING or float(total.max()) > 1 + _ROUNDING:
        raise UnreadableAttention(
            f"{site.name}: the weights are not those of a softmax, so hiding a key is not defined; "
            "use how='mean' or how='delete'"
        )
    left = pattern.masked_fill(hidden, 0.0)
    aside = torch.where(total > 1 - _ROUNDING, 0.0, 1 - total)  # weight of a sink logit
    rest = left.sum(-1, keepdim=True) + aside
    if bool((rest < _LITTLE).any()):  # weights that underflowed: from the scores themselves
        scores = call.scores().masked_fill(hidden, -torch.inf)
        again = scores.softmax(-1).nan_to_num(0.0)
        return torch.where(rest < _LITTLE, again, left / rest.clamp_min(_LITTLE))
    return left / rest
