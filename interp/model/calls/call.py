"""One run of one attention module, in a common form for all implementations.

A tap passes a `Call` to its visitors. `q k v z` are the tensors that the model itself used;
`scores` and `pattern` are computed on demand, for the requested rows. A visitor may assign `z`; the
model then continues with the assigned value. Since z is a function of q, k, v and the pattern,
every edit of those is an assignment of z. Where a gate or norm stands between that product and the
output projection (`Site.gated`), z is first the product and then, `behind_gate`, the input of the
projection, which is what the package calls z everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core.errors import UnreadableAttention

RowIndex = slice | Tensor
ALL = slice(None)


def repeat_kv(x: Tensor, heads: int) -> Tensor:
    """Repeat each kv head for its group: `[batch, kv_head, ...] -> [batch, head, ...]`."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def _rows(x: Tensor, rows: RowIndex) -> Tensor:
    return x[:, :, rows] if x.shape[2] > 1 else x


def precise(x: Tensor) -> Tensor:
    """Convert to at least float32: a recomputed score must not be rounded to half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Call:
    """One run of one attention module; subclasses define how scores are computed."""

    q: Float[Tensor, "batch head query_pos d_head"] | None
    k: Float[Tensor, "batch kv_head key_pos d_head"] | None
    v: Float[Tensor, "batch kv_head key_pos d_v"]
    z: Float[Tensor, "batch head query_pos d_v"]
    # Tokens of each prompt that came before the first query; None outside generation with a cache.
    before: Int[Tensor, "batch"] | None = None
    # True where z passed a gate or norm and is the input of the output projection; see `visiting`
    behind_gate: bool = False
    past: int | None = None  # the same with padding: the column of the first query
    # ids of the columns up to the last query, of a stack that reads them; None where not known
    text: Int[Tensor, "batch column"] | None = None
    watched: bool = False  # read by watching the code instead of through the interface
    rounds: bool = False  # the model's code rounds its scores to 16 bits at every step
    kind: str = "softmax"  # of the map from values to outputs; others are in `interp.model.mixers`

    def scores(self, rows: RowIndex = ALL) -> Float[Tensor, "batch head row key_pos"]:
        """Return the logits that enter the softmax; hidden keys have a large negative number."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def pattern(self, rows: RowIndex = ALL) -> Float[Tensor, "batch head row key_pos"]:
        """Return attention probabilities; rows may sum to less than one (sinks)."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def normalised(
        self, scores: Float[Tensor, "batch head row key_pos"]
    ) -> Float[Tensor, "batch head row key_pos"]:
        """Compute the pattern that scores give."""
        return scores.softmax(-1)

    def visible(self, rows: RowIndex = ALL) -> Bool[Tensor, "batch #head row key_pos"]:
        """Return the mask of keys that a query may attend to."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def map(self, rows: RowIndex = ALL) -> Float[Tensor, "batch head row key_pos"]:
        """Return the matrix that multiplies v: the pattern, unless this is not a softmax."""
        return self.pattern(rows)

    def mix(
        self, pattern: Float[Tensor, "batch head row key_pos"]
    ) -> Float[Tensor, "batch head row d_v"]:
        """Compute the z that a pattern gives: in a gated layer before the gate."""
        if self.behind_gate:
            raise UnreadableAttention(
                "the output of another pattern must pass the gate or norm that stands between this "
                "attention and its output projection; this analysis replaces z behind it"
            )
        batch, heads, rows, keys = pattern.shape
        groups = self.v.shape[1]
        v = self.v.to(pattern.dtype)
        return (pattern.reshape(batch, groups, -1, keys) @ v).reshape(batch, heads, rows, -1)

    @property
    def n_heads(self) -> int:
        """Number of query heads of this call."""
        return self.z.shape[1]


@dataclass(eq=False)
class ComputedCall(Call):
    """Call whose scores follow from q, k, masks and biases."""

    q: Tensor
    k: Tensor
    v: Tensor
    z: Tensor
    scale: float
    mask: Tensor | None = None  # bool (True = attend), or added to the scores
    causal: bool = False  # set only if the kernel itself hides later positions
    window: int | None = None  # keys back that a query sees, itself included, beside the mask
    bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None  # one logit per head that enters the softmax and is then dropped
    owner: str = ""  # class of the module, for errors
    rounds: bool = False  # see `Call`; scores are then rounded as eager code does

    def _mask(self, rows: RowIndex) -> Tensor | None:
        if self.mask is None:
            return None
        return _rows(self.mask, rows)[..., : self.k.shape[2]]

    def visible(self, rows: RowIndex = ALL) -> Tensor:
        """Return the mask of keys that a query may attend to."""
        queries, keys = self.q.shape[2], self.k.shape[2]
        query = torch.arange(queries, device=self.q.device)[rows]
        key = torch.arange(keys, device=self.q.device)
        seen = torch.ones(
            self.q.shape[0], 1, len(query), keys, dtype=torch.bool, device=self.q.device
        )
        if self.causal:
            seen = seen & (key <= query[:, None])
        if self.window is not None:
            seen = seen & (key > query[:, None] - self.window)
        mask = self._mask(rows)
        if mask is not None:
            seen = seen & (
                mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
            )
        return seen

    def scores(self, rows: RowIndex = ALL) -> Tensor:
        """Return the logits that enter the softmax; hidden keys have a large negative number.

        Where the model's code rounds every step to 16 bits (`rounds`), these are its own numbers.
        """
        q, k = self.q[:, :, rows], self.k
        if not self.rounds:
            q, k = precise(q), precise(k)
        batch, heads, n_rows, d = q.shape
        s = q.reshape(batch, k.shape[1], -1, d) @ k.transpose(-1, -2)
        s = s.reshape(batch, heads, n_rows, -1) * self.scale
        if self.softcap is not None:
            s = torch.tanh(s / self.softcap) * self.softcap
        if self.bias is not None:
            s = s + _rows(self.bias, rows)[..., : s.shape[-1]].to(s.dtype)
        lowest = torch.finfo(s.dtype).min
        if self.causal or self.window is not None:
            query = torch.arange(self.q.shape[2], device=s.device)[rows, None]
            key = torch.arange(s.shape[-1], device=s.device)
            if self.causal:
                s = s.masked_fill(key > query, lowest)
            if self.window is not None:
                s = s.masked_fill(key <= query - self.window, lowest)
        mask = self._mask(rows)
        if mask is not None and mask.dtype == torch.bool:
            s = s.masked_fill(~mask, lowest)
        elif mask is not None:  # finfo.min added twice (mask and bias) must not become -inf:
            s = (s + mask).clamp_min(lowest)  # a hidden row would become NaN
        return precise(s)

    def pattern(self, rows: RowIndex = ALL) -> Tensor:
        """Return attention probabilities; rows may sum to less than one (sinks)."""
        return self.normalised(self.scores(rows))

    def normalised(self, scores: Tensor) -> Tensor:
        """Compute the softmax of scores including sinks, which are then dropped."""
        if self.sinks is None:
            return super().normalised(scores)
        sink = self.sinks.to(scores.dtype).reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        both = torch.cat([scores, sink], -1)
        if self.rounds:  # gpt-oss subtracts the largest score first
            narrow = both.to(self.q.dtype)
            both = (narrow - narrow.amax(-1, keepdim=True)).to(scores.dtype)
        return both.softmax(-1)[..., :-1]


@dataclass(eq=False)
class RecordedCall(Call):
    """Call of a module's own attention code: the observed softmax and products."""

    v: Tensor
    z: Tensor
    recorded_scores: Tensor
    recorded_pattern: Tensor
    q: Tensor | None = None  # None if the scores are a sum of several products
    k: Tensor | None = None
    derived: ComputedCall | None = None  # the same call from q and k, where its steps are known
    order: int = 0  # place of the product of q and k among those of its module's forward

    def scores(self, rows: RowIndex = ALL) -> Tensor:
        """Return the logits that enter the softmax; hidden keys have a large negative number."""
        return precise(self.recorded_scores[:, :, rows])

    def pattern(self, rows: RowIndex = ALL) -> Tensor:
        """Return attention probabilities; rows may sum to less than one (sinks)."""
        return precise(self.recorded_pattern[:, :, rows])

    def visible(self, rows: RowIndex = ALL) -> Tensor:
        """Return the mask of visible keys: their scores are not a mask's large negative number."""
        s = self.recorded_scores[:, :, rows]
        # Families mask with finfo.min, -1e9 or -10000; true scores are far above.
        return s > max(torch.finfo(s.dtype).min / 2, -5_000.0)


@dataclass(eq=False)
class ReturnedCall(RecordedCall):
    """Call of a user's attention function: the weights that it returned; scores are their logs."""

    masked_by: ComputedCall | None = None  # a call with its mask; None where there is none

    def scores(self, rows: RowIndex = ALL) -> Tensor:
        """Return logits that give the weights; hidden keys have a large negative number."""
        weights = self.pattern(rows)
        return weights.log().clamp_min(torch.finfo(weights.dtype).min)

    def visible(self, rows: RowIndex = ALL) -> Tensor:
        """Return the mask of keys that a query may attend to."""
        if self.masked_by is None:
            return torch.ones_like(self.recorded_pattern[:, :1, rows], dtype=torch.bool)
        return self.masked_by.visible(rows)

    def mixed(self) -> Tensor:
        """Compute the product of the weights and the values."""
        return self.mix(self.pattern())


def first_tensor(x: object) -> Tensor | None:
    """Return the activations among the inputs or outputs of a module."""
    if isinstance(x, Tensor):
        return x if x.is_floating_point() and x.dim() >= 2 else None
    if isinstance(x, Mapping):
        x = [x["hidden_states"], *x.values()] if "hidden_states" in x else list(x.values())
    if isinstance(x, (tuple, list)):
        return next((t for t in map(first_tensor, x) if t is not None), None)
    return None


def with_tensor(x: Any, old: Tensor | None, new: Tensor) -> Any:
    """Return the same nest of tuples, lists and mappings with one tensor replaced."""
    if x is old:
        return new
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(with_tensor(y, old, new) for y in x))
    if isinstance(x, (tuple, list)):
        return type(x)(with_tensor(y, old, new) for y in x)
    if isinstance(x, dict):
        mapping = x.copy()
        for key, y in x.items():
            mapping[key] = with_tensor(y, old, new)
        return mapping
    return x
