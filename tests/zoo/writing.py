"""Edits while a model writes with a cache, held against runs of the whole text without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import interp
from interp.model.calls.sites import softmax_sites
from interp.model.edits import Edit, add, gate, mean, resample, set_z, zero
from interp.model.inputs import takes
from interp.model.key_edits import reweight, set_targets
from interp.model.pattern_edits import set_pattern, temperature, uniform

LONGEST = 40  # positions for which given values have rows
PLAIN: dict[str, Any] = {
    "max_new_tokens": 5,
    "do_sample": False,
    "eos_token_id": None,
    "pad_token_id": 0,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "bad_words_ids": None,
    "top_k": 0,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "disable_compile": True,
}
"""Arguments of `generate` under which every logit is the model's own."""


class Recorder:
    """Logits processor that keeps the ids and the log-probabilities of every step."""

    def __init__(self) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.steps.append((input_ids.clone(), scores.float().log_softmax(-1)))
        return scores


def left_padded(model: interp.Model, lengths: Sequence[int] = (9, 6)) -> dict[str, Tensor]:
    """Prompts of these lengths, padded on the left."""
    draw = torch.Generator().manual_seed(3)
    ids = torch.randint(8, model.d_vocab, (len(lengths), max(lengths)), generator=draw)
    mask = torch.ones_like(ids)
    for row, length in enumerate(lengths):
        mask[row, : max(lengths) - length] = 0
        ids[row, : max(lengths) - length] = 0
    return {"input_ids": ids, "attention_mask": mask}


def difference(
    model: interp.Model,
    inputs: dict[str, Tensor],
    edits: Callable[[int], Sequence[Edit]],
    **options: Any,
) -> tuple[float, int, Tensor]:
    """Largest difference of log-probabilities between steps with a cache and whole runs without.

    Args:
        model: the model.
        inputs: the prompts.
        edits: function that returns the edits for a number of columns.
        options: arguments of the module's `generate`.

    Returns:
        The difference, the number of rows compared, and the written ids.
    """
    found, module = Recorder(), model.module
    given = PLAIN | options
    with model.edited(*edits(LONGEST)), torch.no_grad():
        ids = module.generate(**inputs, logits_processor=[found], **given)
    worst, rows = 0.0, 0
    for text, scores in found.steps:
        with model.edited(*edits(text.shape[1])), torch.no_grad():
            whole = whole_inputs(model, inputs, text)
            want = module(**whole, use_cache=False).logits[:, -1].float().log_softmax(-1)
        worst, rows = max(worst, float((scores - want).abs().max())), rows + len(text)
    return worst, rows, ids


def whole_inputs(model: interp.Model, inputs: dict[str, Tensor], text: Tensor) -> dict[str, Tensor]:
    """Inputs of a run without a cache over all that was written so far."""
    first = next(iter(inputs.values()))
    copies = len(text) // len(first)
    whole = {name: x.repeat_interleave(copies, 0) for name, x in inputs.items()}
    if model.kind == "encoder-decoder":
        return whole | {"decoder_input_ids": text}
    new = text.shape[1] - inputs["input_ids"].shape[1]
    mask = whole.get("attention_mask", torch.ones_like(whole["input_ids"]))
    mask = torch.cat([mask, mask.new_ones(len(text), new)], 1)
    whole |= {"input_ids": text, "attention_mask": mask}
    if "position_ids" in takes(model.module):
        whole["position_ids"] = (mask.cumsum(1) - 1).clamp_min(0)
    return whole


def repeats(query: Any, key: Any, tokens: Any) -> Any:
    """Attends to the tokens up to the current one whose ids have the same last bit."""
    return (key <= query) & (tokens[key] % 2 == tokens[query] % 2)


def edits_for(model: interp.Model, padded: bool) -> dict[str, Callable[[list, int], Edit]]:
    """Every edit that holds with a cache, by name, as functions of heads and of a number of rows.

    The heads are of the last softmax layer of the decoder.

    Args:
        model: the model.
        padded: leave out those whose given values count columns.
    """
    last = [s for s in softmax_sites(model.sites) if s.stack == "decoder"][-1]
    draw = torch.Generator().manual_seed(1)
    key, width = (last.stack, last.layer), last.d_v

    def values(rows: int) -> Tensor:
        return torch.randn(1, last.n_heads, rows, width, generator=draw)

    # no weight on later keys
    square = torch.rand(1, last.n_heads, LONGEST, LONGEST, generator=draw).tril()
    if getattr(model.config, "sliding_window", None):  # none on keys that the cache has dropped
        square = square.triu(1 - model.config.sliding_window)
    square = square / square.sum(-1, keepdim=True)
    one, others = values(1), {key: values(1)[0, :, 0]}

    def spread(pattern: Tensor) -> Tensor:
        return pattern.sqrt() / pattern.sqrt().sum(-1, keepdim=True).clamp_min(1e-9)

    stack = last.stack
    found: dict[str, Callable[[list, int], Edit]] = {
        "zero": lambda h, n: zero(h, stack=stack),
        "zero at positions": lambda h, n: zero(h, stack=stack, positions=slice(4, 11, 2)),
        "scale": lambda h, n: gate(h, 1.7, stack=stack),
        "mean of others": lambda h, n: mean(h, over="dataset", reference=others, stack=stack),
        "uniform": lambda h, n: uniform(h, stack=stack),
        "set": lambda h, n: set_z(h, one, stack=stack),
        "add a vector": lambda h, n: add(h, {key: one}, 0.5, stack=stack),
        "function of the pattern": lambda h, n: set_pattern(h, spread, stack=stack),
        "temperature": lambda h, n: temperature(h, 0.6, stack=stack),
        "suppress a segment": lambda h, n: reweight(h, slice(1, 4), 0.0, stack=stack),
        "raise a segment": lambda h, n: reweight(h, [1, 2, 7], 5.0, stack=stack),
        "only a segment": lambda h, n: reweight(h, slice(0, 3), float("inf"), stack=stack),
        "description": lambda h, n: set_targets(h, repeats, stack=stack),
    }
    if not padded:
        long = values(LONGEST)
        found |= {
            "set pattern": lambda h, n: set_pattern(h, square[:, :, :n, :n], stack=stack),
            "values per position": lambda h, n: set_z(h, long[:, :, :n], stack=stack),
            "values of the prompt": lambda h, n: set_z(
                h, long[:, :, : n if n < LONGEST else 12], stack=stack, positions=slice(0, 12)
            ),
            "resample": lambda h, n: resample(h, {key: long[:, :, :n]}, stack=stack),
        }
    return found
