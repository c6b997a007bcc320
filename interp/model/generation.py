"""Generation with a cache, with the attention of every new token captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.model.activation_names import HEAD_NAMES
from interp.model.calls.call import Call
from interp.model.calls.sites import Site, softmax_sites
from interp.model.capture import ActivationCache, Recorder
from interp.model.capture_request import requested
from interp.model.edits import Edit
from interp.model.hooks.inference import inference
from interp.model.inputs import takes
from interp.model.softmax_view import softmax_view

if TYPE_CHECKING:
    from interp.model.transformer import Transformer


@dataclass(frozen=True, eq=False)
class Generation:
    """Greedily generated ids and the captures of each step; the first step is the prompt."""

    ids: Tensor
    steps: tuple[ActivationCache, ...]


_NOT_FOR_GENERATE = ("decoder_input_ids", "decoder_attention_mask", "position_ids")


def generate(
    model: Transformer,
    prompts: Any,
    max_new_tokens: int,
    *,
    names: Sequence[str] = (),
    edits: Sequence[Edit] = (),
) -> Generation:
    """Generate greedily with the model's own cache and store activations of every step.

    Prompts of unequal length are padded on the left, so that no padding separates a prompt from its
    continuation. A sliding-window cache keeps only the last keys: the key axis of a step counts the
    entries of the cache, not positions in the text. In a hybrid model the softmax layers are read
    and edited; the state from which the others continue does not keep earlier inputs apart.

    Args:
        model: the loaded model.
        prompts: the prompts.
        max_new_tokens: number of tokens to generate.
        names: activations to capture: any of q, k, v, scores, pattern and z.
        edits: interventions under which to run.

    Raises:
        OptionError: the model cannot generate, or an activation is not available during generation.
        UnreadableAttention: a recurrent model without softmax layers is to be captured or edited.
    """
    can = getattr(model.module, "can_generate", None)
    if not (callable(can) and can()):
        raise OptionError(
            f"{model.name} ({model.kind}) has no language-model head to generate with"
        )
    if not isinstance(prompts, Mapping):
        prompts = Prompts.of(prompts, model)
        # generated tokens must directly follow the prompt's last token
        if model.kind != "encoder-decoder":
            prompts = replace(prompts, padding="left")
    inputs = model.inputs(prompts)
    # generate computes the positions itself, from the mask
    inputs = {k: v for k, v in inputs.items() if k not in _NOT_FOR_GENERATE}
    if "input_ids" in inputs and "attention_mask" in takes(model.module):
        # otherwise generate treats every token with the padding id as padding
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    request = requested(model, names, None, None, None, None, None)
    wrong = [n for n in request.names if n not in HEAD_NAMES or n == "result"]
    if wrong:
        raise OptionError(
            f"during generation {', '.join(wrong)} cannot be captured; known: q, k, v, scores, "
            "pattern, z"
        )
    has_softmax = bool(softmax_sites(model.sites))
    reader = softmax_view(model) if has_softmax else model
    recorders: list[Recorder] = []
    seen: dict[tuple[str, int], int] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        key = site.stack, site.layer
        step = seen[key] = seen.get(key, -1) + 1
        while len(recorders) <= step:
            recorders.append(Recorder(reader, request, to=None))
        recorders[step].visit(site, call, real)

    active = (*model.active_edits, *(edit.name for edit in edits))
    pad = getattr(model.config, "pad_token_id", None)
    with ExitStack() as contexts:
        contexts.enter_context(torch.no_grad())
        contexts.enter_context(inference(model.module))
        if edits:
            contexts.enter_context(reader.edited(*edits))
        if has_softmax or request.names:  # a recurrent model is refused only if it is to be read
            contexts.enter_context(reader.visited(visit))
        ids = model.module.generate(  # type: ignore[operator]
            **inputs,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            pad_token_id=0 if pad is None else pad,
        )
    steps = tuple(
        ActivationCache(torch.empty(0), r.values, request.heads, active) for r in recorders
    )
    return Generation(ids, steps)
