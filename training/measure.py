"""Plain measurements of a bundled model: losses, stripes, ablated heads.

Deliberately without the toolkit: the figures on a model card must not depend on what they are
there to test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import LlamaForCausalLM

from interp.core.statistics import percentile_interval, redraw


@torch.no_grad()
def token_losses(model: LlamaForCausalLM, ids: Int[Tensor, "batch pos"]) -> Float[Tensor, "..."]:
    """Cross-entropy (nats) of every token but the first, shape [batch, pos - 1]."""
    logits = model(ids).logits[:, :-1].float()
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def copied_loss(
    model: LlamaForCausalLM, ids: Int[Tensor, "batch pos"], period: int
) -> Float[np.ndarray, " batch"]:
    """Mean loss over the second copy of <s> + r + r, but for its first token, row by row."""
    return token_losses(model, ids)[:, period + 1 :].mean(-1).numpy()


@torch.no_grad()
def stripes(
    model: LlamaForCausalLM, ids: Int[Tensor, "batch pos"], period: int
) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Mean mass of each head of <s> + r + r on the previous token and on the induction target."""
    implementation = model.config._attn_implementation or "sdpa"
    model.set_attn_implementation("eager")
    pattern = torch.stack(model(ids, output_attentions=True).attentions)
    model.set_attn_implementation(implementation)
    t = torch.arange(1, ids.shape[1])
    second = torch.arange(period + 1, ids.shape[1])
    return {
        "previous_token": pattern[..., t, t - 1].mean((1, 3)).numpy(),
        "induction": pattern[..., second, second - period + 1].mean((1, 3)).numpy(),
    }


@contextmanager
def zeroed(model: LlamaForCausalLM, heads: Sequence[tuple[int, int]]) -> Iterator[None]:
    """Zeroes heads, given as (layer, head), where their output enters the output projection."""
    handles = []
    for layer, head in heads:

        def zero(module, inputs, head=head):
            size = module.in_features // model.config.num_attention_heads
            z = inputs[0].clone()
            z[..., head * size : (head + 1) * size] = 0
            return (z,)

        projection = model.get_submodule(f"model.layers.{layer}.self_attn.o_proj")
        handles.append(projection.register_forward_pre_hook(zero))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def ratio_interval(
    after: Float[np.ndarray, " batch"], before: Float[np.ndarray, " batch"], seed: int = 0
) -> list[float]:
    """The 2.5 and 97.5 per cent points of mean(after) / mean(before), by resampling rows."""
    rows = redraw(len(after), 2000, np.random.default_rng(seed))
    ratios = after[rows].mean(1) / before[rows].mean(1)
    return [float(point) for point in percentile_interval(ratios)]


def mean_and_error(values: np.ndarray) -> list[float]:
    """Mean and standard error over rows."""
    return [float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)]
