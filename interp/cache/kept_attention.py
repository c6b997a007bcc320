"""Attention of the queries of one layer to the tokens that its heads keep.

A cache hands keys and values to the attention of transformers, which expects one tensor for all
heads. Heads with budgets of their own have none: the layer hands out stand-ins of the full shape
that hold no memory, and answers when the attention multiplies by them. Both implementations of
transformers are answered, "sdpa" and "eager"; any other use of a stand-in is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, UnreadableAttention

if TYPE_CHECKING:
    from interp.cache.kept_tokens import Entries, KeptGroup

ROWS = 256  # queries of a block of a prompt
SCORED = 16  # last rows of the prompt whose weights score its tokens
POOL = 7  # neighbours that share the largest of their scores
SHAPES = ("__getitem__", "expand", "reshape", "view", "transpose", "permute", "unsqueeze")
SAME = ("contiguous", "to", "type")
BETWEEN = ("mul", "__mul__", "__rmul__", "div", "__truediv__", "tanh", "to", "float", "type")


class KeptCall:
    """One call of a layer: its new tokens, and what the attention says of them.

    Args:
        groups: the groups of heads of the layer.
        keys: new keys.
        values: new values.
        seen: tokens before them.
        first: position of each prompt's first token, once known; None if all are 0.
        done: function that is called at the end with the first positions.
    """

    def __init__(
        self,
        groups: list[KeptGroup],
        keys: Tensor,
        values: Tensor,
        seen: int,
        first: Tensor | None,
        done: Callable[[Tensor | None], None],
    ) -> None:
        self.groups, self.seen, self.first, self.done = groups, seen, first, done
        self.batch, self.kv, self.new = keys.shape[:3]
        self.entries: list[Entries] = [g.entries(keys, values, seen) for g in groups]
        self.mask: Tensor | None = None
        self.stand_ins = tuple(self._stand_in(x, i == 1) for i, x in enumerate((keys, values)))

    def _stand_in(self, x: Tensor, values: bool) -> StandIn:
        shape = (self.batch, self.kv, self.seen + self.new, x.shape[3])
        stand_in = x.new_zeros(()).expand(shape).as_subclass(StandIn)
        stand_in.step, stand_in.holds_values = self, values
        return stand_in

    def sdpa(self, query: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
        """Return the output of all heads, in the shape of `query`."""
        self._see(mask)
        by = float(query.shape[-1] ** -0.5) if scale is None else scale
        q = query.reshape(self.batch, self.kv, -1, self.new, query.shape[-1])
        sizes = (*q.shape[:-1], self.entries[0][1].shape[-1])
        out = q.new_empty(sizes)
        for group, (k, v, at) in zip(self.groups, self.entries, strict=True):
            mine = q[:, group.heads]
            if at is None or (self.seen == 0 and _reads_prompt(group)):
                out[:, group.heads] = _sdpa(mine, k, v, mask, causal, by)
            elif self.new == 1:
                seen = None if mask is None else _at(mask, at)
                out[:, group.heads] = _sdpa(mine, k, v, seen, False, by)
            else:
                out[:, group.heads] = self._windowed(group, mine, k, v, at[:, 0], by)
        self._end(lambda g, k: self._weights(q[:, g.heads], k, by))
        return out.reshape(*query.shape[:-1], sizes[-1])

    def _windowed(
        self, group: KeptGroup, q: Tensor, k: Tensor, v: Tensor, at: Tensor, scale: float
    ) -> Tensor:
        """Return the output of several queries, each with its own window, in blocks of rows."""
        assert group.budget is not None
        m, outputs = at.shape[1], []
        first = 0 if self.first is None else int(self.first.max())
        front = group.stored or first + group.budget.sink
        for start in range(0, self.new, ROWS):
            end = min(start + ROWS, self.new)
            high = m - self.new + end
            low = max(front, m - self.new + start - group.budget.recent + 1)
            places = torch.arange(high, device=k.device)
            places = places[(places < front) | (places >= low)]
            seen = self._inside(group, at[:, places], slice(start, end))
            if self.mask is not None:
                theirs = _at(self.mask[:, :, start:end], at[:, None, places])
                seen = _both(theirs, seen)
            part = q[:, :, :, start:end]
            outputs.append(_sdpa(part, k[:, :, places], v[:, :, places], seen, False, scale))
        return torch.cat(outputs, 3)

    def _inside(self, group: KeptGroup, at: Tensor, rows: slice) -> Tensor:
        """Return which positions the queries of some rows see, `[batch or 1, 1, query, key]`."""
        assert group.budget is not None
        rank = at if self.first is None else at - self.first[:, None]
        query = torch.arange(self.seen, self.seen + self.new, device=at.device)[rows, None]
        key = at[:, None]
        near = (query - key < group.budget.recent) | (rank < group.budget.sink)[:, None]
        return ((key <= query) & near)[:, None]

    def scores(self, query: Tensor) -> KeptScores:
        """Return products of queries and kept keys at their positions, 0 elsewhere."""
        q = query.reshape(self.batch, self.kv, -1, self.new, query.shape[-1])
        products = q.new_zeros(*q.shape[:-1], self.seen + self.new)
        for group, (k, _, at) in zip(self.groups, self.entries, strict=True):
            part = q[:, group.heads] @ k[:, :, None].transpose(-1, -2)
            if at is None:
                products[:, group.heads] = part
            else:
                mine = torch.zeros_like(products[:, group.heads])
                index = at[:, :, None, None].long().expand(*part.shape[:-1], -1)
                products[:, group.heads] = mine.scatter(-1, index, part)
        result = products.flatten(1, 2).as_subclass(KeptScores)
        result.step = self
        return result

    def hidden(self, scores: Tensor) -> Tensor:
        """Return the scores with the lowest value where a head keeps nothing."""
        self._see(self.mask)
        masked = scores.reshape(self.batch, self.kv, -1, *scores.shape[-2:]).clone()
        for group, (_, _, at) in zip(self.groups, self.entries, strict=True):
            if at is None or (self.seen == 0 and _reads_prompt(group)):
                continue
            visible = torch.zeros(
                *at.shape[:2], masked.shape[-1], dtype=torch.bool, device=at.device
            )
            visible = visible.scatter(2, at.long(), True)[:, :, None]
            if self.new > 1:
                every = torch.arange(masked.shape[-1], device=at.device)[None]
                visible = visible & self._inside(group, every, slice(None))
            lowest = torch.finfo(masked.dtype).min
            masked[:, group.heads] = masked[:, group.heads].masked_fill(
                ~visible[:, :, None], lowest
            )
        return masked.flatten(1, 2)

    def output(self, weights: Tensor) -> Tensor:
        """Return the weights times the kept values, and end the call."""
        w = weights.reshape(self.batch, self.kv, -1, *weights.shape[-2:])
        out = w.new_empty(*w.shape[:-1], self.entries[0][1].shape[-1])
        for group, (_, v, at) in zip(self.groups, self.entries, strict=True):
            part = w[:, group.heads]
            if at is not None:
                index = at[:, :, None, None].long().expand(*part.shape[:-1], -1)
                part = part.gather(-1, index)
            out[:, group.heads] = part @ v[:, :, None]
        self._end(lambda g, _: w[:, g.heads][..., -SCORED:, :])
        return out.flatten(1, 2)

    def _see(self, mask: Tensor | None) -> None:
        """Read from the mask of the first call where each prompt begins."""
        if mask is not None and mask.shape[1] != 1:
            raise UnreadableAttention(
                "the model masks keys by head, which a small cache cannot follow; use a full cache"
            )
        self.mask = mask
        if self.seen or mask is None:
            return
        real = _visible(mask)[:, 0].diagonal(dim1=-2, dim2=-1)
        if not real.any(1).all():
            raise OptionError("a prompt has no token in the first call; give longer chunks")
        first = real.int().argmax(1)
        self.first = first.expand(self.batch) if bool(first.any()) else None

    def _weights(self, q: Tensor, k: Tensor, scale: float) -> Tensor:
        """Return the attention of the last rows of a prompt."""
        rows = min(SCORED, self.new)
        scores = q[..., -rows:, :] @ k[:, :, None].transpose(-1, -2) * scale
        at = torch.arange(self.new, device=q.device)
        seen = at[None] <= at[-rows:, None]
        if self.mask is not None:
            seen = seen & _visible(self.mask)[:, :, None, -rows:]
        return scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1)

    def _end(self, weights: Callable[[KeptGroup, Tensor], Tensor]) -> None:
        """Let go of what the budgets do not keep."""
        for group, (k, v, at) in zip(self.groups, self.entries, strict=True):

            def score(
                group: KeptGroup = group, k: Tensor = k, v: Tensor = v
            ) -> Float[Tensor, "batch head token"]:
                assert group.budget is not None
                if group.budget.by == "key_norm":
                    importance = -k.norm(dim=-1)
                else:
                    each = weights(group, k)
                    rows = torch.arange(self.new - each.shape[-2], self.new, device=k.device)
                    if self.first is not None:  # rows of padding say nothing
                        real = (rows >= self.first[:, None])[:, None, None, :, None]
                        each = each * real
                    importance = each.sum(-2).mean(2)
                    importance = torch.nn.functional.max_pool1d(importance, POOL, 1, POOL // 2)
                    if group.budget.by == "value_attention":
                        importance = importance * v.abs().sum(-1)
                if self.first is not None:
                    before = torch.arange(k.shape[2], device=k.device) < self.first[:, None]
                    importance = importance.masked_fill(before[:, None], -torch.inf)
                return importance

            group.keep((k, v, at), self.first, score)
        self.entries = []
        self.done(self.first)


class StandIn(Tensor):
    """Keys or values of the full shape without memory, whose products a `KeptCall` computes."""

    step: KeptCall
    holds_values: bool

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.__name__
        if name in ("__get__", "size", "dim"):
            return super().__torch_function__(func, types, args, kwargs)
        mine = next(x for x in args if isinstance(x, cls)) if _any(args, cls) else None
        if name == "scaled_dot_product_attention" and mine is not None:
            query, _, _, *rest = args
            options = dict(
                zip(("attn_mask", "dropout_p", "is_causal", "scale"), rest, strict=False)
            )
            options |= kwargs
            return mine.step.sdpa(
                query,
                options.get("attn_mask"),
                options.get("is_causal", False),
                options.get("scale"),
            )
        if name in ("matmul", "__matmul__") and isinstance(args[1], cls):
            step = args[1].step
            return step.output(args[0]) if args[1].holds_values else step.scores(args[0])
        if mine is not None and args[0] is mine and name in SAME:
            return mine
        if mine is not None and args[0] is mine and name in SHAPES:
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*args, **kwargs).as_subclass(cls)
            result.step, result.holds_values = mine.step, mine.holds_values
            return result
        raise UnreadableAttention(
            f"the model's attention reads its cache by {name}, which a small cache cannot answer; "
            "use attention='sdpa' or 'eager' of transformers"
        )


class KeptScores(Tensor):
    """Scores of eager attention on their way to the softmax, which sees kept tokens only."""

    step: KeptCall

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.__name__
        with torch._C.DisableTorchFunctionSubclass():
            if name in ("__get__", "size", "dim"):
                return func(*args, **kwargs)
            mine = next((x for x in args if isinstance(x, cls)), None)
            if mine is not None and name == "softmax":
                return func(mine.step.hidden(mine.as_subclass(Tensor)), *args[1:], **kwargs)
            if mine is not None and name in ("add", "__add__") and isinstance(args[1], Tensor):
                mine.step.mask = args[1]
            elif mine is None or name not in BETWEEN:
                raise UnreadableAttention(
                    f"the model's attention changes its scores by {name}, which a small cache "
                    "cannot follow; use attention='sdpa'"
                )
            result = func(*args, **kwargs).as_subclass(cls)
        result.step = mine.step
        return result


def _any(args: Any, kind: type) -> bool:
    return any(isinstance(x, kind) for x in args)


def _reads_prompt(group: KeptGroup) -> bool:
    return group.budget is not None and group.budget.reads_prompt


def _visible(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def _at(mask: Tensor, at: Tensor) -> Tensor:
    """Return the columns of a mask at the positions of entries."""
    b, h = max(len(mask), len(at)), at.shape[1]
    index = at[:, :, None].long().expand(b, h, mask.shape[2], -1)
    return mask.expand(b, h, -1, -1).gather(-1, index)


def _both(theirs: Tensor, inside: Tensor) -> Tensor:
    if theirs.dtype == torch.bool:
        return theirs & inside
    return theirs.masked_fill(~inside, torch.finfo(theirs.dtype).min)


def _sdpa(
    q: Float[Tensor, "b h group q d"],
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
) -> Float[Tensor, "b h group q d_v"]:
    """Return the attention of grouped queries; one query of each head joins its group as rows."""
    attend: Any = torch.nn.functional.scaled_dot_product_attention
    if q.shape[3] == 1:
        return attend(q[:, :, :, 0], k, v, mask, scale=scale)[:, :, :, None]
    output = attend(
        q.flatten(1, 2), k, v, mask, is_causal=causal, scale=scale, enable_gqa=q.shape[2] > 1
    )
    return output.unflatten(1, q.shape[1:3])
