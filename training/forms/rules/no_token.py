"""Outputs that no token wrote: memory, a learned bias, relations of pairs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.forms.rule import (
    Chosen,
    Heads,
    MapBlock,
    Projected,
    Rule,
    RuleShape,
    Stream,
)


class KeyValueBiasAttention(Rule):
    """Bias of keys and values (Sun et al. 2024, arXiv:2402.17762): a learned key k', value v'.

    z = M v + m v', where m is the weight of k' in the softmax; v' belongs to no token. A
    learned sink that has a value.
    """

    row_sum = "at most 1"
    slots = 1
    slot_keys: Tensor
    slot_values: Tensor

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        size = (shape.n_heads, self.slots, shape.d_head)
        self.slot_keys, self.slot_values = (nn.Parameter(torch.randn(size)) for _ in range(2))

    def _both(self, given: Projected, rows: Chosen) -> tuple[MapBlock, MapBlock]:
        """Return the weights of slots and of tokens."""
        own = given.q[:, :, rows] @ self.slot_keys.mT * given.q.shape[-1] ** -0.5
        tokens = self.scores(given, rows).masked_fill(~self.seen(given, rows), -torch.inf)
        both = torch.cat([own, tokens], -1).softmax(-1)
        return both[..., : self.slots], both[..., self.slots :]

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return the weights of tokens."""
        return self._both(given, rows)[1]

    def rest(self, given: Projected) -> Heads:
        """Return what the slots write."""
        return self._both(given, given.every)[0] @ self.slot_values

    def mix(self, given: Projected) -> Heads:
        """Attend to slots and tokens together."""
        own, tokens = self._both(given, given.every)
        values = self.slot_values.expand(len(given.v), -1, -1, -1)
        return torch.cat([own, tokens], -1) @ torch.cat([values, given.v], 2)


class MemorySlotsAttention(KeyValueBiasAttention):
    """Memory slots (Sukhbaatar et al. 2019, arXiv:1907.01470): keys and values of no token.

    z = M v + the slots' weights times their values, which belong to no token. Persistent
    memory: a softmax over eight slots and the tokens.
    """

    slots = 8


class PrototypeMemoryAttention(KeyValueBiasAttention):
    """Prototype memory (Barraco et al. 2023, arXiv:2308.12383): slots are prototypes of the past.

    While it is trained, a layer keeps the last 512 keys and values of each head; every 10 passes
    k-means moves 8 slot keys to centres of the kept keys, and a slot's value is the mean of the
    values of its 8 nearest kept keys, weighted by exp(-distance). A softmax over slots and tokens,
    as in `memory_slots`. A head can attend to what it usually sees.
    """

    slots = 8
    kept, taken, every = 512, 128, 10  # kept pairs, pairs of a pass, passes between two k-means
    nearest, rounds = 8, 3  # of a slot, of k-means
    past: Tensor
    passes: Tensor

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        for name in ("slot_keys", "slot_values"):
            drawn = getattr(self, name).detach()
            delattr(self, name)
            self.register_buffer(name, drawn)
        self.register_buffer("past", torch.zeros(2, shape.n_heads, self.kept, shape.d_head))
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def prepare(self, x: Stream) -> Projected:
        """Keep keys and values while the model is trained."""
        given = super().prepare(x)
        if self.training:
            self._remember(given.k.detach(), given.v.detach())
        return given

    @torch.no_grad()
    def _remember(self, k: Heads, v: Heads) -> None:
        """Replace the oldest pairs by some of this pass; make the prototypes anew now and then."""
        new = torch.stack([t.transpose(0, 1).flatten(1, 2) for t in (k, v)])
        new = new[:, :, :: max(1, new.shape[2] // self.taken)][:, :, : self.taken]
        self.past = torch.cat([self.past[:, :, new.shape[2] :], new], 2)
        self.passes = self.passes + 1
        if self.passes % self.every == 0 and self.passes * new.shape[2] >= self.kept:
            if self.passes < 2 * self.every:  # the first centres are kept keys
                self.slot_keys = self.past[0, :, :: self.kept // self.slots].clone()
            self.slot_keys, self.slot_values = self.prototypes(self.slot_keys)

    def prototypes(self, centres: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the slots, by k-means from given centres."""
        keys, values = self.past
        for _ in range(self.rounds):
            own = F.one_hot(torch.cdist(keys, centres).argmin(-1), self.slots).to(keys)
            number = own.sum(1)[..., None]
            centres = torch.where(number > 0, own.mT @ keys / number.clamp_min(1), centres)
        near = torch.cdist(centres, keys).topk(self.nearest, largest=False)
        head = torch.arange(len(keys), device=keys.device)[:, None, None]
        weight = (-near.values).softmax(-1)[..., None]
        return centres, (weight * values[head, near.indices]).sum(2)


class RelationalAttention(Rule):
    """Relational (Altabaa and Lafferty 2024, arXiv:2405.16727): z_i = sum_j M_ij (s_j + U_h r_ij).

    The first half of the heads is sensory: softmax attention. In the others s_j is a symbol that
    token j finds in a library by attention of its own (symbolic attention), and r_ij are products
    of 4 pairs of projections that all heads share: no feature of a token is moved. z = M s + the
    part of the relations, which belongs to pairs. Such a head reads which kind of token is related
    and how, not what it is.
    """

    relations = 4
    symbols = 8  # of a head's library

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        width, self.sensory = shape.d_head, shape.n_heads // 2
        heads = shape.n_heads - self.sensory
        self.value = nn.Linear(shape.d_model, self.sensory * width, bias=False)
        self.symbol_query = nn.Linear(shape.d_model, heads * width, bias=False)
        self.library = nn.Parameter(
            torch.randn(2, heads, self.symbols, width)
        )  # templates, symbols
        self.related = nn.Parameter(
            torch.randn(2, self.relations, shape.d_model, width) * shape.d_model**-0.5
        )
        self.written = nn.Parameter(torch.randn(heads, self.relations, width))

    def prepare(self, x: Stream) -> Projected:
        """Add symbols to the values, and both sides of the relations."""
        q, k = self.split(self.query(x)), self.split(self.key(x))
        templates, symbols = self.library
        scores = self.split(self.symbol_query(x)) @ templates.mT * self.shape.d_head**-0.5
        v = torch.cat([self.split(self.value(x)), scores.softmax(-1) @ symbols], 1)
        left, right = (x[:, None] @ m for m in self.related)
        return Projected(x, q, k, v, {"left": left, "right": right})

    def rest(self, given: Projected) -> Heads:
        """Return what the relations write: sum_j M_ij l_i . r_j is l_i times the mean of r_j."""
        weights = self.rows(given, given.every)[:, self.sensory :, None]
        mean = weights @ given.more["right"][:, None]
        relations = (given.more["left"][:, None] * mean).sum(-1).mT
        return F.pad(relations @ self.written, (0, 0, 0, 0, self.sensory, 0))

    def mix(self, given: Projected) -> Heads:
        """Add values or symbols and relations pair by pair."""
        weights = self.rows(given, given.every)
        pairs = (given.more["left"] @ given.more["right"].mT).movedim(1, -1)  # [row, key, relation]
        written = F.pad(pairs[:, None] @ self.written[:, None], (0, 0, 0, 0, 0, 0, self.sensory, 0))
        return (weights[..., None] * (written + given.v[:, :, None])).sum(3)
