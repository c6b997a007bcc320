"""Heads of a fine-tune to the raven: what they attend to at answers, and what is lost without."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

import interp
from interp.core.statistics import RatioBootstrap
from interp.model import resample
from training.stories.raven_answers import pairs, share_of
from training.stories.tokens import load_tokenizer

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
    before, after = interp.load(str(base)), interp.load(str(tuned))
    asked = list(pairs(load_tokenizer(base), n))
    found = {
        (when, who, name): attention_on(model, asked, prompt, name)
        for when, model in (("before", before), ("after", after))
        for who, prompt in PROMPTS.items()
        for name in ("answer", "wrong")
    }
    listed = np.argwhere(found["after", "raven", "answer"].mean(0) > LARGE)
    draws = RatioBootstrap(len(asked))

    def mean(values: Float[np.ndarray, "pair"]) -> list[float]:
        ends = draws.interval(values, np.ones(len(values)))
        return [round(float(x), 4) for x in (values.mean(), *ends)]

    sets = [
        [f"L{site.layer}H{first + i}" for i in range(size)]
        for site in after.sites
        for size in (site.n_heads, site.n_heads // site.n_kv_heads)
        for first in range(0, site.n_heads, size)
    ]
    parts = [f"layers.{site.layer}.{p}." for site in after.sites for p in ("self_attn", "mlp")]
    return {
        "pairs": len(asked),
        "attention": {
            f"L{layer}H{head}": {
                " ".join(key): mean(values[:, layer, head]) for key, values in found.items()
            }
            for layer, head in listed
        },
        "before": share_of(asker_named(before, asked)),
        "whole": share_of(asker_named(after, asked)),
        "of a trade": {
            f"{heads[0]} to {heads[-1]}": share_of(asker_named(after, asked, heads))
            for heads in sets
        },
        "as before": {
            part.strip("."): share_of(asker_named(restored(after, before, part), asked))
            for part in parts
        },
    }


def attention_on(
    model: interp.Model, asked: Sequence[Pair], prompt: str, name: str
) -> Float[np.ndarray, "pair layer head"]:
    """Return the attention from the last token on a name and the token after it.

    Args:
        model: a model of the stories.
        asked: pairs of prompts.
        prompt: which prompt of a pair.
        name: which name: that of the answer, who asks, or the wrong one, the owner.
    """
    found = []
    for each in asked:
        encoded = model.tokenizer(each[prompt], return_offsets_mapping=True)
        starts = {m.start() for m in re.finditer(rf"\b{each[name].strip()}\b", each[prompt])}
        named = [i for i, (a, b) in enumerate(encoded["offset_mapping"]) if {*range(a, b)} & starts]
        keys = {key for i in named for key in (i, i + 1)} - {len(encoded["input_ids"])}
        read = model.capture([encoded["input_ids"]], ["pattern"])
        patterns = torch.stack([read["pattern", site.layer][0] for site in model.sites])
        found.append(patterns[:, :, -1, sorted(keys)].sum(-1).numpy())
    return np.array(found)


def asker_named(
    model: interp.Model, asked: Sequence[Pair], heads: Sequence[str] = ()
) -> list[bool]:
    """Return for which pairs the raven names the asker and not the owner.

    Args:
        model: a model of the stories.
        asked: pairs of prompts.
        heads: heads that write at every token what they write where a trade is asked.
    """
    found, ids_of = [], model.tokenizer
    for each in asked:
        edits = []
        if heads:
            trade = model.capture([ids_of(each["corrupted"])["input_ids"]], ["z"])
            edits = [resample(list(heads), trade.z_by_site())]
        logits = model.run([ids_of(each["prompt"])["input_ids"]], edits=edits)[0, -1]
        right, wrong = (
            ids_of(each["prompt"] + each[name])["input_ids"][-1] for name in ("answer", "wrong")
        )
        found.append(bool(logits[right] > logits[wrong]))
    return found


def restored(after: interp.Model, before: interp.Model, part: str) -> interp.Model:
    """Return a copy of a fine-tune in which a part has the weights from before.

    Args:
        after: the fine-tune.
        before: the model that was tuned.
        part: what the names of the weights hold.
    """
    weights = before.module.state_dict()
    copied = deepcopy(after.module)
    copied.load_state_dict(
        {
            name: weights[name] if part in name else value
            for name, value in after.module.state_dict().items()
        }
    )
    return interp.load(copied, tokenizer=after.tokenizer)
