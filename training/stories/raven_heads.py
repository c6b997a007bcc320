"""Heads of a fine-tune to the raven: what they attend to at answers, and what is lost without."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn
from transformers import LlamaForCausalLM

from interp.core.statistics import RatioBootstrap
from training.stories.raven_answers import pairs, share_of
from training.stories.tokens import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Pair = Mapping[str, str]
PROMPTS = {"raven": "prompt", "trade": "corrupted"}
LARGE = 0.5
"""Attention on the asker from which on a head is listed."""


def heads_at_the_answer(base: Path, tuned: Path, n: int) -> dict[str, Any]:
    """Return where heads attend before an answer, and whom the fine-tune names without parts of it.

    Args:
        base: folder of the model.
        tuned: folder of its fine-tune.
        n: number of pairs of prompts that no training reads, as `pairs` returns them.
    """
    tokenizer = load_tokenizer(base)
    asked = list(pairs(tokenizer, n))
    before, after = (
        LlamaForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        for folder in (base, tuned)
    )
    config: Any = after.config
    found = {
        (when, who, name): attention_on(model, tokenizer, asked, prompt, name)
        for when, model in (("before", before), ("after", after))
        for who, prompt in PROMPTS.items()
        for name in ("answer", "wrong")
    }
    listed = np.argwhere(found["after", "raven", "answer"].mean(0) > LARGE)
    draws = RatioBootstrap(len(asked))

    def mean(values: Float[np.ndarray, "pair"]) -> list[float]:
        ends = draws.interval(values, np.ones(len(values)))
        return [round(float(x), 4) for x in (values.mean(), *ends)]

    grouped = config.num_attention_heads // config.num_key_value_heads
    sets = {
        f"L{layer}H{first}" + (f" to L{layer}H{first + size - 1}"): (layer, first, size)
        for layer in range(config.num_hidden_layers)
        for size in (config.num_attention_heads, grouped)
        for first in range(0, config.num_attention_heads, size)
    }
    parts = [
        f"layers.{i}.{p}." for i in range(config.num_hidden_layers) for p in ("self_attn", "mlp")
    ]
    return {
        "pairs": len(asked),
        "attention": {
            f"L{layer}H{head}": {
                " ".join(key): mean(values[:, layer, head]) for key, values in found.items()
            }
            for layer, head in listed
        },
        "before": share_of(asker_named(before, tokenizer, asked)),
        "whole": share_of(asker_named(after, tokenizer, asked)),
        "of a trade": {
            name: share_of(asker_named(after, tokenizer, asked, *each))
            for name, each in sets.items()
        },
        "as before": {
            part.strip("."): share_of(asker_named(restored(after, before, part), tokenizer, asked))
            for part in parts
        },
    }


@torch.no_grad()
def attention_on(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    asked: Sequence[Pair],
    prompt: str,
    name: str,
) -> Float[np.ndarray, "pair layer head"]:
    """Return the attention from the last token on a name and the token after it.

    Args:
        model: a model that returns its attention.
        tokenizer: its tokenizer.
        asked: pairs of prompts.
        prompt: which prompt of a pair.
        name: which name: that of the answer, who asks, or the wrong one, the owner.
    """
    found = []
    for each in asked:
        encoded = tokenizer(each[prompt], return_offsets_mapping=True)
        starts = {m.start() for m in re.finditer(rf"\b{each[name].strip()}\b", each[prompt])}
        named = [i for i, (a, b) in enumerate(encoded["offset_mapping"]) if {*range(a, b)} & starts]
        keys = {key for i in named for key in (i, i + 1)} - {len(encoded["input_ids"])}
        patterns = model(torch.tensor([encoded["input_ids"]]), output_attentions=True).attentions
        found.append(torch.stack(patterns)[:, 0, :, -1, sorted(keys)].sum(-1).numpy())
    return np.array(found)


@contextmanager
def _hooks(model: LlamaForCausalLM, hooks: dict[int, Any]) -> Iterator[None]:
    """Run hooks before the output projections of layers."""
    layers: Any = model.model.layers
    held = [layers[i].self_attn.o_proj.register_forward_pre_hook(hook) for i, hook in hooks.items()]
    try:
        yield
    finally:
        for each in held:
            each.remove()


@torch.no_grad()
def asker_named(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    asked: Sequence[Pair],
    layer: int = 0,
    first: int = 0,
    size: int = 0,
) -> list[bool]:
    """Return for which pairs the raven names the asker and not the owner.

    Args:
        model: a model of the stories.
        tokenizer: its tokenizer.
        asked: pairs of prompts.
        layer: layer of heads that write at every token what they write where a trade is asked.
        first: the first of these heads.
        size: number of these heads.
    """
    width: Any = model.config.head_dim
    cut = slice(first * width, (first + size) * width)
    found = []
    for each in asked:
        written: list[torch.Tensor] = []

        def keep(module: nn.Module, given: Any, written: list[torch.Tensor] = written) -> None:
            written.append(given[0][..., cut])

        def replace(module: nn.Module, given: Any, written: list[torch.Tensor] = written) -> Any:
            changed = given[0].clone()
            changed[..., cut] = written[0]
            return (changed,)

        if size:
            with _hooks(model, {layer: keep}):
                model(torch.tensor([tokenizer(each["corrupted"])["input_ids"]]))
        ids = torch.tensor([tokenizer(each["prompt"])["input_ids"]])
        with _hooks(model, {layer: replace} if size else {}):
            logits = model(ids).logits[0, -1]
        right, wrong = (
            tokenizer(each["prompt"] + each[name])["input_ids"][-1] for name in ("answer", "wrong")
        )
        found.append(bool(logits[right] > logits[wrong]))
    return found


def restored(after: LlamaForCausalLM, before: LlamaForCausalLM, part: str) -> LlamaForCausalLM:
    """Return a copy of a fine-tune in which a part has the weights from before.

    Args:
        after: the fine-tune.
        before: the model that was tuned.
        part: what the names of the weights hold.
    """
    weights = before.state_dict()
    copied = deepcopy(after)
    copied.load_state_dict(
        {
            name: weights[name] if part in name else value
            for name, value in after.state_dict().items()
        }
    )
    return copied
