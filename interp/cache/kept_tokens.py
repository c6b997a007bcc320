"""Keys and values that a group of heads with one budget keeps, and which tokens leave it.

A group has an exact part, its sink and its recent tokens, in order of positions, and a tail, the
best tokens of the prompt or all between sink and window, rounded if the budget says so. Tokens that
leave are copied out of what stays, so that their memory is freed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.cache.budgets import Budget
from interp.model.rounding import Packed, pack

KeptTensor = Tensor | Packed
Entries = tuple[Tensor, Tensor, Tensor | None]


class KeptGroup:
    """Heads of one layer that keep the same tokens, or as many.

    Args:
        heads: their indices among the key-value heads of the layer.
        budget: what they keep; None for everything.
    """

    def __init__(self, heads: list[int], budget: Budget | None) -> None:
        self.heads, self.budget = heads, budget
        self.keys: Tensor | None = None  # [batch, head, token, d_head], the exact part
        self.values: Tensor | None = None
        self.at: Tensor | None = None  # [batch or 1, token]: positions of the exact part
        self.tail: list[KeptTensor] = []  # keys and values
        self.tail_at: Tensor | None = None  # [batch or 1, head or 1, token]

    @property
    def stored(self) -> int:
        """Number of tokens in the exact part."""
        return 0 if self.keys is None else self.keys.shape[2]

    def entries(
        self, keys: Float[Tensor, "b kv q d"], values: Float[Tensor, "b kv q d_v"], seen: int
    ) -> Entries:
        """Return all keys, values and positions that the new tokens may see, tail first.

        Positions are `[batch or 1, head or 1, token]`, or None where every token is kept.
        """
        k, v = keys[:, self.heads], values[:, self.heads]
        new = torch.arange(seen, seen + k.shape[2], device=k.device, dtype=torch.int32)[None]
        if self.keys is not None and self.values is not None:
            k, v = torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2)
        if self.budget is None:
            return k, v, None
        at = new if self.at is None else torch.cat([self.at, new.expand(len(self.at), -1)], 1)
        at = at[:, None]
        if self.tail_at is None:
            return k, v, at
        tail_k, tail_v = (x.restored() if isinstance(x, Packed) else x for x in self.tail)
        b, h = max(len(at), len(self.tail_at)), self.tail_at.shape[1]
        both = [x.expand(b, h, -1) for x in (self.tail_at, at)]
        return torch.cat([tail_k, k], 2), torch.cat([tail_v, v], 2), torch.cat(both, 2)

    def keep(
        self, entries: Entries, first: Int[Tensor, " b"] | None, score: Callable[[], Tensor]
    ) -> None:
        """Keep of the entries what the budget allows, and let the others go."""
        k, v, at = entries
        if self.budget is None or at is None:
            self.keys, self.values = k, v
            return
        prompt = self.at is None
        done = 0 if self.tail_at is None else self.tail_at.shape[2]
        at = at[:, 0, done:]
        m, recent = at.shape[1], self.budget.recent - 1
        n = min(m, self.budget.sink + recent)
        if first is None:
            every = torch.arange(m, device=k.device)[None]
            sink = n - min(recent, m)
            stay = torch.cat([every[:, :sink], every[:, m - (n - sink) :]], 1)
            leave = every[:, sink : m - (n - sink)]
        else:
            stay, leave = _divided(at, first, self.budget, n)
        rest = leave + done
        self.keys, self.values = (_taken(x, (stay + done)[:, None]) for x in (k, v))
        self.at = at.gather(1, stay.expand(len(at), -1)) if len(stay) == 1 else _rows(at, stay)
        if self.budget.top:
            rest = self._best(rest, score()) if prompt else rest[:, :0]
        if rest.shape[-1] and self.budget.reads_prompt:
            rest = rest[:, None] if rest.dim() == 2 else rest
            self._append(_taken(k, rest), _taken(v, rest), entries[2], rest)

    def _best(self, rest: Tensor, score: Tensor) -> Int[Tensor, "b head k"]:
        """Return the best of the rest, in order of positions; of equal ones the earlier."""
        assert self.budget is not None
        rest = rest[:, None].expand(*score.shape[:2], -1)
        size = min(self.budget.top, rest.shape[2])
        order = score.gather(2, rest).sort(dim=2, descending=True, stable=True).indices
        return rest.gather(2, order[..., :size]).sort(2).values

    def _append(self, keys: Tensor, values: Tensor, at: Tensor | None, which: Tensor) -> None:
        assert at is not None
        assert self.budget is not None
        b, h = max(len(at), len(which)), max(at.shape[1], which.shape[1])
        new_at = at.expand(b, h, -1).gather(2, which.expand(b, h, -1))
        bits = self.budget.bits
        new: list[KeptTensor] = [x if bits is None else pack(x, bits) for x in (keys, values)]
        if self.tail_at is None:
            self.tail, self.tail_at = new, new_at
            return
        self.tail = [_joined(old, more) for old, more in zip(self.tail, new, strict=True)]
        self.tail_at = torch.cat([self.tail_at, new_at], 2)

    def tensors(self) -> Iterator[Tensor]:
        """Yield everything that is held in memory."""
        yield from (x for x in (self.keys, self.values, self.at, self.tail_at) if x is not None)
        for each in self.tail:
            yield from each.tensors() if isinstance(each, Packed) else (each,)

    def over_batch(self, change: Callable[[Tensor], Tensor], batch: int) -> None:
        """Change the rows of every tensor that has one for each prompt."""

        def changed(x: Tensor | None) -> Tensor | None:
            return x if x is None or (len(x) == 1 and batch > 1) else change(x)

        self.keys, self.values, self.at, self.tail_at = map(
            changed, (self.keys, self.values, self.at, self.tail_at)
        )
        self.tail = [
            x.with_tensors(*map(change, x.tensors())) if isinstance(x, Packed) else change(x)
            for x in self.tail
        ]


def _divided(
    at: Int[Tensor, "b m"], first: Int[Tensor, " b"], budget: Budget, n: int
) -> tuple[Tensor, Tensor]:
    """Return, for padded prompts, the entries that stay in the exact part and those that leave."""
    last = at.max() + 1
    rank = at - first[:, None]
    inside = (rank >= 0) & ((rank < budget.sink) | (last - at < budget.recent))
    order = (~inside).int().argsort(dim=1, stable=True)
    return order[:, :n].sort(1).values, order[:, n:].sort(1).values


def _rows(at: Tensor, which: Tensor) -> Tensor:
    return at.expand(len(which), -1).gather(1, which)


def _taken(x: Float[Tensor, "b h m d"], which: Int[Tensor, "b1 h1 k"]) -> Tensor:
    """Return a copy of some entries, which may differ over prompts and heads."""
    if len(which) == which.shape[1] == 1:
        return x.index_select(2, which[0, 0])
    index = which[..., None].expand(*x.shape[:2], -1, x.shape[3])
    return x.gather(2, index)


def _joined(one: KeptTensor, other: KeptTensor) -> KeptTensor:
    if isinstance(one, Packed) and isinstance(other, Packed):
        pairs = zip(one.tensors(), other.tensors(), strict=True)
        return one.with_tensors(*(torch.cat(pair, 2) for pair in pairs))
    assert isinstance(one, Tensor)
    assert isinstance(other, Tensor)
    return torch.cat([one, other], 2)
