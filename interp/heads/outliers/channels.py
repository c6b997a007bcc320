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
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.task import Task
from interp.core.clusters import cluster_count
from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.core.prompts import Prompts
from interp.core.result import Result
from interp.core.statistics import bootstrap_interval
from interp.heads.outliers.passes import HeadValues, captured
from interp.heads.per_head import PerHead
from interp.model.calls.call import Call, ComputedCall
from interp.model.calls.sites import Site
from interp.model.content import result_provenance
from interp.model.edits import Edit
from interp.model.hooks.inference import inference
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

MASSIVE = 5.0
ChannelPart = Literal["q", "k"]


@dataclass(frozen=True, eq=False, repr=False)
class Massive(PerHead):
    """Ratio of the largest channel norm to the mean one per head and prompt, and its channel."""

    part: str
    ratio: HeadValues
    channel: HeadValues
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _same_as = MappingProxyType({"score": "ratio"})

    def _measured(self) -> Mapping[str, HeadValues]:
        return {f"massive_{self.part}": self.ratio}

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": f"massive_{self.part}", "unit": "times the mean channel"}

    def to_pandas(self, times: float = MASSIVE) -> pd.DataFrame:
        """Return one row per head, with the share of prompts beyond `times`."""
        frame = self._completed(self._rows(times))
        return frame if self._kept is None else frame.iloc[self._kept].reset_index(drop=True)

    def _rows(self, times: float = MASSIVE) -> pd.DataFrame:
        """Return one row per head: mean ratio, share beyond `times`, commonest channel."""
        import pandas as pd

        return pd.DataFrame(
            {
                "stack": site.stack, "layer": site.layer, "head": h, "part": self.part,
                "ratio": float(x[:, h].mean()), "massive": float((x[:, h] > times).double().mean()),
                "channel": int(self.channel[site][:, h].mode().values),
            }
            for site, x in self.ratio.items() for h in range(x.shape[1])
        )  # fmt: skip


@takes_model
def massive(model: Model, prompts: Any, part: ChannelPart = "q") -> Massive:
    """Measure the largest channel norm of each head's queries or keys, over the mean one.

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

    given = Prompts.of(prompts, model)
    found = captured(model, given, (part,), measure)
    return Massive(
        part,
        {s: x[..., 0] for s, x in found.items()},
        {s: x[..., 1] for s, x in found.items()},
        result_provenance(model, "interp.heads.outliers.massive", given, part=part),
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
    return Edit(name, parse_heads(heads), replace, None, stack, f"fill={fill}")


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


@dataclass(frozen=True, eq=False, repr=False)
class Disruption(Result):
    """Value of a task per prompt without the largest channels, and without the smallest.

    Its single row is the difference of the two; the interval is a percentile bootstrap over
    prompts.
    """

    task: str
    unit: str
    parts: tuple[str, ...]
    fill: str
    clean: Float[np.ndarray, " prompt"]
    largest: Float[np.ndarray, " prompt"]
    smallest: Float[np.ndarray, " prompt"]
    clusters: tuple[str, ...] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _units = ("task", "parts", "fill")
    _same_as = MappingProxyType({"score": "difference"})

    @property
    def per_prompt(self) -> Float[np.ndarray, "row prompt"]:
        """Difference on each prompt: without the largest, minus without the smallest."""
        values = (self.largest - self.smallest)[None]
        return values if self._kept is None else values[list(self._kept)]

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "disruption"}

    def bounds(self, level: float = 0.95) -> Float[np.ndarray, "row 2"]:
        """Return the bootstrap interval of the mean difference, over prompts or their clusters."""
        each = self.per_prompt
        if not len(each) or cluster_count(len(self.clean), self.clusters) < 2:
            return np.full((len(each), 2), np.nan)
        return bootstrap_interval(each, level, clusters=self.clusters)

    def _rows(self) -> pd.DataFrame:
        """Return one row: the three means, and the difference with its 95 % interval."""
        import pandas as pd

        clusters = cluster_count(len(self.clean), self.clusters)
        low, high = dataclasses.replace(self).bounds()[0].tolist()
        row = {
            "task": self.task, "unit": self.unit, "parts": "+".join(self.parts), "fill": self.fill,
            "clean": self.clean.mean(), "without_largest": self.largest.mean(),
            "without_smallest": self.smallest.mean(),
            "difference": (self.largest - self.smallest).mean(), "low": low, "high": high,
            "n": len(self.clean), "clusters": clusters,
        }  # fmt: skip
        return pd.DataFrame([row])


@takes_model
def disruption(
    model: Model,
    task: Task,
    *,
    parts: Sequence[ChannelPart] = ("q", "k"),
    fill: Literal["mean", "max"] = "mean",
    stack: str | None = None,
) -> Disruption:
    """Measure a task without every head's largest channel, and without the smallest.

    Args:
        model: the model to run.
        task: a task on prompts, such as `interp.causal.repeats_task(model)`.
        parts: see `replace_channel`.
        fill: see `replace_channel`; the control is always filled with the mean.
        stack: the stack whose heads are edited.

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
    return Disruption(
        task.name, task.unit, tuple(parts), fill, clean_values, largest, smallest, task.clusters,
        result_provenance(
            model, "interp.heads.outliers.disruption", task.prompts, parts=list(parts), fill=fill,
            task=task.name, stack=stack,
        ),
    )  # fmt: skip


def _logits(model: Model, task: Task, prompt: int, edits: Sequence[Edit]) -> Tensor:
    """Return the logits that the task reads for one prompt."""
    if not isinstance(task.prompts, Prompts):
        raise PromptError(f"task {task.name} does not read tokens; give a task on prompts")
    with torch.no_grad(), inference(model.module):
        whole = model.run(Prompts((task.prompts.ids[prompt],)), edits)
    rows = whole[0, list(task.positions[prompt])]
    return rows if task.vocabulary is None else rows[:, list(task.vocabulary)]
