"""Queries and keys of one head as sums of parts, and the score as the sum of their products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.circuits.linear_scores import LinearScores
from interp.core.errors import UnreadableAttention
from interp.model.calls.call import Call, ComputedCall, RecordedCall, precise

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from interp.circuits.why.stream_parts import StreamParts
    from interp.model.calls.sites import Site

IDENTITY = 1e-5  # largest difference of the sum of all terms from the score, of the largest score


@dataclass(frozen=True, eq=False)
class AddedScores:
    """Changes that one attention makes to its products: soft-cap, biases and visibility.

    Args:
        cap: Soft-cap of the products, if there is one.
        bias: ALiBi, relative positions and other terms added after it, without the mask.
        visible: Keys that each query can attend to.
        sinks: Logit per head that enters the softmax beside the keys.
    """

    cap: float | None
    bias: Float[Tensor, "batch head query key"]
    visible: Bool[Tensor, "batch head query key"]
    sinks: Float[Tensor, " head"] | None

    def capped(self, x: Tensor) -> Tensor:
        """Apply the soft-cap."""
        return x if self.cap is None else self.cap * torch.tanh(x / self.cap)

    def weights(self, head: int, scores: Float[Tensor, "*at key"], seen: Tensor) -> Tensor:
        """Return the attention that scores of one head give."""
        scores = scores.masked_fill(~seen, -torch.inf)
        if self.sinks is None:
            return scores.softmax(-1)
        sink = self.sinks[head].to(scores).expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]


def added_scores(run: LinearScores) -> dict[Site, AddedScores]:
    """Return soft-cap, biases and visible keys of every attention of a decomposed run."""
    by_site: dict[Site, AddedScores] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        by_site[site] = _added(run, site, call)

    run.model.read(run.inputs, visit)
    # Where the model's own code gave the scores, what it adds must be the same for other tokens.
    rest = {
        site: _rest(run, site, x.visible)
        for site, x in by_site.items()
        if bool(x.bias.isnan().any())
    }
    for site, x in list(rest.items()):
        size = run.cache["scores", site.layer][by_site[site].visible].abs().max()
        if float(x.abs().max()) <= IDENTITY * max(1.0, float(size)):  # rounding: nothing is added
            by_site[site] = replace(by_site[site], bias=torch.zeros_like(rest.pop(site)))
    if not rest:
        return by_site
    turned = dict(run.inputs)
    turned["input_ids"] = run.inputs["input_ids"].flip(1)
    other = LinearScores(run.model, turned, turned=run.turns)
    for site, x in rest.items():
        apart = float((x - _rest(other, site, by_site[site].visible)).abs().max())
        size = float(run.cache["scores", site.layer][by_site[site].visible].abs().max())
        if apart > IDENTITY * max(1.0, size):
            raise UnreadableAttention(
                f"{site.name} ({site.module}): what it adds to the products of queries and keys "
                "depends on the tokens, so its scores are not a sum over pairs of writers"
            )
        by_site[site] = replace(by_site[site], bias=x)
    return by_site


def _added(run: LinearScores, site: Site, call: Call) -> AddedScores:
    cap, sinks = getattr(call, "softcap", None), getattr(call, "sinks", None)
    seen = call.visible().expand(len(call.z), call.n_heads, -1, -1)
    like = run.cache["scores", site.layer]
    known = call.derived if isinstance(call, RecordedCall) else call
    if isinstance(known, ComputedCall):
        cap = known.softcap
        assert known.q is not None
        bias = precise(replace(known, q=torch.zeros_like(known.q)).scores()).double()
        bias = bias.expand_as(like).masked_fill(~seen, 0.0)
    else:
        bias = torch.full_like(like, torch.nan, dtype=torch.float64)
    return AddedScores(cap, bias, seen, None if sinks is None else precise(sinks.detach()))


def _rest(run: LinearScores, site: Site, seen: Tensor) -> Tensor:
    q = run.cache["q", site.layer].double()
    kv = [site.kv_head(h) for h in range(site.n_heads)]
    k = run.cache["k", site.layer].double()[:, kv]
    product = run.scale(site) * (q @ k.mT)
    return (run.cache["scores", site.layer].double() - product).masked_fill(~seen, 0.0)


class ScoreParts:
    """Query and key parts of one head in one batch, in float64.

    Args:
        stream: The parts of the stream.
        added: Soft-cap and biases of the attention.
        site: The attention layer.
        head: The head.

    Attributes:
        names: Names of the parts, the same on both sides; the last is the bias.
        q, k: Parts of queries and keys, after norms and rotary positions.
        scores: The model's own scores.
        error: Largest difference of the sum of all terms from them, over visible keys.

    Raises:
        UnreadableAttention: The terms do not sum to the model's own scores.
    """

    def __init__(self, stream: StreamParts, added: AddedScores, site: Site, head: int) -> None:
        run = stream.scores
        parts = stream.before(site)
        self.names, self.site, self.head, self.added = parts.names, site, head, added
        self.scale = run.scale(site)
        self.q = self._side(run, parts.x, "q")
        self.k = self._side(run, parts.x, "k")
        self.scores = run.cache["scores", site.layer][:, head].double()
        self.pattern = run.cache["pattern", site.layer][:, head].double()
        self.seen, self.bias = added.visible[:, head], added.bias[:, head]
        self.product = self.scale * self.q.sum(1) @ self.k.sum(1).mT
        wrong = (added.capped(self.product) + self.bias - self.scores).masked_fill(~self.seen, 0.0)
        self.error = float(wrong.abs().max())
        self.size = max(1.0, float(self.scores.masked_fill(~self.seen, 0.0).abs().max()))
        if not self.error <= IDENTITY * self.size:
            raise UnreadableAttention(
                f"{run.model.name}: the terms of L{site.layer}H{head} differ from its scores by "
                f"{self.error:.2g}, more than {IDENTITY:g} of the largest score; "
                + (
                    "load the model in float32"
                    if run.model.dtype != torch.float32
                    else "something else enters its queries or keys"
                )
            )

    def _side(self, run: LinearScores, x: Tensor, part: str) -> Float[Tensor, "batch part pos d"]:
        side, h = run.side(self.site, part), self.head
        factor, core = side.factor[:, h].double(), side.core[:, h].double()
        read = torch.einsum("bpwm,md->bwpd", x.double(), side.basis[h].double())
        projected = torch.einsum(
            "bwpd,bpde->bwpe", read * factor[:, None, :, None], core[:, :, :-1]
        )
        projected[:, -1] += core[:, :, -1]
        return projected

    def key_means(self, row: int) -> Float[Tensor, "part query d_head"]:
        """Return the mean of each part's keys over the keys that each query sees."""
        seen = self.seen[row].double()
        return (seen / seen.sum(-1, keepdim=True).clamp_min(1)) @ self.k[row]

    def spread(self, row: int) -> Float[Tensor, " part"]:
        """Return how far each part's keys lie from their mean, of the largest key."""
        k = self.k[row]
        apart = (k - k.mean(1, keepdim=True)).norm(dim=-1).amax(1)
        return apart / self.k[row].norm(dim=-1).amax().clamp_min(1e-30)
