"""What predicates see at each attention of a batch: the tokens and the segments of its stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from interp.core.prompts import Prompts
from interp.model.hooks.calls import Call
from interp.model.locate.sites import Site
from interp.model.single_prompts import apart, pictured
from interp.model.spans import token_ids
from interp.model.stack_segments import call_segments
from interp_kernels.segments import Segments

if TYPE_CHECKING:
    from interp.model.model import Model


class LookedAt:
    """Tokens and segments of one batch; one object per stack, which all of its layers share.

    Args:
        model: the model.
        batch: the prompts, or a mapping of input tensors.
    """

    def __init__(self, model: Model, batch: Prompts | Mapping[str, Any]) -> None:
        self.model, self.given = model, batch
        self._kept: dict[tuple, Any] = {}
        self.inputs: Mapping[str, Any]
        if isinstance(batch, Prompts):
            self.inputs = {"input_ids": padded_tokens(batch, model)}
            if batch.decoder is not None:
                self.inputs |= {"decoder_input_ids": padded_tokens(batch.decoder, model)}
        else:
            self.inputs = batch

    def tokens(self, site: Site, call: Call) -> Tensor | None:
        """Return the tokens that predicates see at a site; of tensors the ids of its stack."""
        ids = token_ids(self.inputs, site)
        if isinstance(self.given, Prompts):
            return ids
        if site.stack not in ("encoder", "decoder") and "text" not in site.stack:
            return None  # a vision or audio tower
        if ids is None or tuple(ids.shape) != (call.z.shape[0], call.v.shape[2]):
            return None
        key = ("tokens", site.stack)
        if key not in self._kept:
            ids = apart(self.model, ids) if pictured(self.model, self.given) else ids
            self._kept[key] = ids.to(self.model.device)
        return self._kept[key]

    def segments(self, site: Site, call: Call) -> Segments:
        """Return the segments that predicates see at a site.

        Raises:
            PromptError: queries or keys are not the positions of the prompts.
        """
        shape = (call.z.shape[0], call.z.shape[2], call.v.shape[2])
        key = ("segments", site.stack, *shape)
        if key not in self._kept:
            self._kept[key] = call_segments(self.model, self.inputs, site, shape)
        return self._kept[key]


def padded_tokens(batch: Prompts, model: Model) -> Tensor:
    """Return the tokens that predicates see, in the columns of the padded batch."""
    ids, _ = Prompts(batch.looked_at(), padding=batch.padding).padded()
    return ids.to(model.device)
