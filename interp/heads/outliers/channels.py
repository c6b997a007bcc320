"""Massive values in queries and keys, and a test of their effect.

Definitions of Jin et al. 2025, "Massive Values in Self-Attention Modules are the Key to Contextual
Knowledge Understanding": the norm M of every channel over the tokens of a prompt, after rotary
embedding; a channel is massive if M exceeds 5 times the head's mean M. The test replaces each
head's channel of largest M, with the channel of smallest M as the control. In the paper both are
replaced by the channel's mean; in the published code (modeling_llama.py) the largest is replaced by
its maximum over tokens and the smallest by its mean. `fill` selects either.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.task import Task
from interp.core.clusters import cluster_count
from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.statistics import bootstrap_bounds
from interp.heads.outliers.passes import captured
from interp.heads.per_head import head_value_columns
from interp.model.calls.call import Call, ComputedCall
from interp.model.calls.sites import Site
from interp.model.content import result_provenance
from interp.model.edits import Edit
from interp.model.hooks.inference import inference
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

MASSIVE = 5.0
ChannelPart = Literal["q", "k"]


@takes_model
def massive(
    model: Model, prompts: Any, part: ChannelPart = "q", *, times: float = MASSIVE
) -> ResultRows:
    """Measure the largest channel norm of each head's queries or keys, over the mean one.

    Args:
        model: the model to run.
        prompts: texts, ids or `Prompts`.
        part: queries or keys.
        times: ratio above which a channel is massive.

    Returns:
        One row per head: stack, layer, head, part, ratio (the score, mean over prompts) with sem
        and n, massive (the share of prompts with a massive channel) and channel (the commonest of
        the largest ones). Array `[row, prompt]`: channels.

    Raises:
        OptionError: the part is neither "q" nor "k".
        UnreadableAttention: the scores of this family are not a product of queries and keys.

    Unit: times the mean channel.

    Cost: One forward pass per prompt.

    Null: 1 for channels of equal size.

    Not for: models with norms on queries and keys; see `massive_k`.

    Reference: Jin et al. 2025 (arXiv 2502.01563)
    """
    if part not in ("q", "k"):
        raise OptionError(f"part {part!r} is not known; use q or k")

    def measure(site: Site, x: dict[str, Tensor]) -> Tensor:
        size = x[part].norm(dim=2)  # [batch, head, channel]
        size = size.repeat_interleave(site.n_heads // size.shape[1], 1)
        best = size.max(-1)
        ratio = best.values / size.mean(-1).clamp_min(1e-30)
        return torch.stack([ratio, best.indices.to(ratio)], -1)

    tokenized = Prompts.of(prompts, model)
    measured = captured(model, tokenized, (part,), measure)
    name, ratios = f"massive_{part}", {site: x[..., 0] for site, x in measured.items()}
    columns, per_prompt = head_value_columns({name: ratios}, tokenized.clusters)
    columns["part"] = [part] * len(per_prompt)
    columns["ratio"] = columns.pop("score")
    columns["massive"] = [
        float((x[:, h] > times).double().mean()) for x in ratios.values() for h in range(x.shape[1])
    ]
    channels = {site: x[..., 1] for site, x in measured.items()}
    columns["channel"] = [int(x) for at in channels.values() for x in at.mode(0).values]
    return ResultRows(
        "Massive",
        columns,
        ("stack", "layer", "head"),
        result_provenance(model, "interp.heads.outliers.massive", tokenized, part=part),
        {"metric": name, "unit": "times the mean channel"},
        per_prompt,
        arrays={"channels": head_value_columns({name: channels})[1]},
        same_as={"score": "ratio"},
        clusters=tokenized.clusters,
        interval_by="kind",
    )


def replace_channel(
    heads: Any,
    *,
    parts: Sequence[ChannelPart] = ("q", "k"),
    which: Literal["largest", "smallest"] = "largest",
    fill: Literal["mean", "max"] = "mean",
    stack: str | None = None,
) -> Edit:
    """Return an edit that sets one channel of each head's queries and keys to one number.

    The number is the same for all tokens.

    Args:
        heads: the heads to edit.
        parts: "q", "k" or both.
        which: "largest" or "smallest", the channel by its norm, chosen per head and prompt.
        fill: "mean" or "max", the channel's mean or maximum over the prompt's tokens.
        stack: the stack whose heads are edited.

    Raises:
        OptionError: an argument has another value.
    """
    from interp.model.head_arguments import parse_heads

    if which not in ("largest", "smallest") or fill not in ("mean", "max"):
        raise OptionError(
            f"which={which!r}, fill={fill!r}: which must be largest or smallest, fill mean or max"
        )
    if not parts or set(parts) - {"q", "k"}:
        raise OptionError(f"parts {list(parts)} are not known; use q, k or both")

    def replace(call: Call, site: Site, real: Tensor) -> Tensor:
        if not isinstance(call, ComputedCall):
            raise UnreadableAttention(
                f"{site.name}: this family computes its scores in custom code, so they cannot be "
                f"recomputed from edited queries and keys"
            )
        q = _filled(call.q, real, which, fill) if "q" in parts else call.q
        same = call.k.shape[2] == real.shape[1]
        seen = real if same else torch.ones_like(call.k[:, 0, :, 0], dtype=torch.bool)
        k = _filled(call.k, seen, which, fill) if "k" in parts else call.k
        changed = dataclasses.replace(call, q=q, k=k)
        return call.mix(changed.pattern())

    name = f"replace-{which}-channel-of-{'+'.join(parts)}"
    heads, detail = parse_heads(heads), f"fill={fill}"
    return Edit(name, heads, replace, None, stack, detail, of_pattern=True)


def _filled(
    x: Float[Tensor, "batch head pos d_head"], real: Tensor, which: str, fill: str
) -> Tensor:
    weight = real[:, None, :, None]
    norm = (x * weight).norm(dim=2)
    index = norm.argmax(-1) if which == "largest" else norm.argmin(-1)
    at = index[:, :, None, None].expand(-1, -1, x.shape[2], 1)
    channel = x.gather(3, at)
    if fill == "mean":
        value = (channel * weight).sum(2, keepdim=True) / weight.sum(2, keepdim=True)
    else:
        value = channel.masked_fill(~weight, -torch.inf).amax(2, keepdim=True)
    return x.scatter(3, at, value.expand_as(channel))


@takes_model
def disruption(
    model: Model,
    task: Task,
    *,
    parts: Sequence[ChannelPart] = ("q", "k"),
    fill: Literal["mean", "max"] = "mean",
    stack: str | None = None,
) -> ResultRows:
    """Measure a task without every head's largest channel, and without the smallest.

    Args:
        model: the model to run.
        task: a task on prompts, such as `interp.causal.repeats_task(model)`.
        parts: see `replace_channel`.
        fill: see `replace_channel`; the control is always filled with the mean.
        stack: the stack whose heads are edited.

    Returns:
        One row: task, parts, fill, the means clean, without_largest and without_smallest,
        difference (the score: without the largest minus without the smallest) with low and high (a
        percentile bootstrap over prompts or their clusters), n and clusters. Facts: values of each
        prompt under largest and smallest.

    Raises:
        OptionError: the task is on tensors, or an option has an unknown value.
        UnreadableAttention: the attention cannot be recomputed.

    Unit: of the task.

    Cost: Three runs over the task's prompts.

    Null: the smallest channel in place of the largest.

    Not for: identifying single heads: the channels of all heads are set at once.

    Reference: Jin et al. 2025 (arXiv 2502.01563)
    """
    if not isinstance(task.prompts, Prompts):
        raise OptionError(f"task {task.name} is on user-supplied tensors; give a task on prompts")
    heads = model.heads(stack)
    edit = replace_channel(heads, parts=parts, which="largest", fill=fill, stack=stack)
    control = replace_channel(heads, parts=parts, which="smallest", stack=stack)
    clean = [_logits(model, task, i, ()) for i in range(len(task))]
    values = [
        np.array(
            [
                float(task.values(_logits(model, task, i, edits), [i], clean[i]))
                for i in range(len(task))
            ]
        )
        for edits in ((), (edit,), (control,))
    ]
    clean_values, largest, smallest = values
    provenance = result_provenance(
        model,
        "interp.heads.outliers.disruption",
        task.prompts,
        parts=list(parts),
        fill=fill,
        task=task.name,
        stack=stack,
    )
    about = {"task": task.name, "unit": task.unit, "parts": "+".join(parts), "fill": fill}
    return disruption_row(about, clean_values, largest, smallest, task.clusters, provenance)


def disruption_row(
    about: Mapping[str, str],
    clean: Float[np.ndarray, " prompt"],
    largest: Float[np.ndarray, " prompt"],
    smallest: Float[np.ndarray, " prompt"],
    clusters: tuple[str, ...] | None,
    made: Mapping[str, Any],
) -> ResultRows:
    """Return the row of `disruption` from the task's value on each prompt."""
    each = (largest - smallest)[None]
    low, high = bootstrap_bounds(each, clusters=clusters)[0]
    row = {
        **about,
        "clean": clean.mean(),
        "without_largest": largest.mean(),
        "without_smallest": smallest.mean(),
        "difference": each[0].mean(),
        "low": low,
        "high": high,
        "n": len(clean),
        "clusters": cluster_count(len(clean), clusters),
    }
    return ResultRows(
        "Disruption",
        {name: [value] for name, value in row.items()},
        ("task", "parts", "fill"),
        made,
        {"metric": "disruption", "largest": largest, "smallest": smallest},
        each,
        clusters=clusters,
        same_as={"score": "difference"},
        interval_by="bootstrap",
    )


def _logits(model: Model, task: Task, prompt: int, edits: Sequence[Edit]) -> Tensor:
    """Return the logits that the task reads for one prompt."""
    if not isinstance(task.prompts, Prompts):
        raise PromptError(f"task {task.name} does not read tokens; give a task on prompts")
    with torch.no_grad(), inference(model.module):
        whole = model.run(Prompts((task.prompts.ids[prompt],)), edits)
    rows = whole[0, list(task.positions[prompt])]
    return rows if task.vocabulary is None else rows[:, list(task.vocabulary)]
