"""Cache cards: what each key-value head keeps, and the measured loss of cutting its cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.cache.bytes import token_bytes
from interp.cache.losses import CutLosses, require_longer
from interp.cache.windows import KVHead, Window, cached_sites, kv_heads
from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError
from interp.core.prompts import Prompts, repeats
from interp.core.protocols import Progress, silent
from interp.core.result import Result
from interp.core.statistics import percentile_interval, redraw_counts
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp.model.random_weights import random_init

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

BLOCK = 2**21  # weights of a block of rows


@dataclass(frozen=True, eq=False, repr=False)
class CacheCards(Result):
    """One card per key-value head; rows are heads, the score is the loss with the smallest window.

    Args:
        kv: the key-value heads.
        sink: first tokens that every cut cache keeps.
        recents: numbers of last tokens of the measured windows, ascending.
        losses: increase of the mean loss, nats per token, `[kv_head, window, prompt]`.
        mass: attention on the first `sink` tokens, on the last `recents[0]` tokens besides, and on
            the rest, `[kv_head, part]`; the mean over prompts, rows and query heads.
        null: the loss of the smallest window on random weights, mean over prompts; NaN without.
        max_loss: bound of the budgets.
        length: tokens of the longest prompt; the budget of a head that needs everything.
        each: bytes of one token per head.
        clusters: what prompts share.
    """

    kv: tuple[KVHead, ...]
    sink: int
    recents: tuple[int, ...]
    losses: Float[np.ndarray, "kv_head window prompt"]
    mass: Float[np.ndarray, "kv_head 3"]
    null: Float[np.ndarray, " kv_head"]
    max_loss: float
    length: int
    each: tuple[int, ...]
    clusters: tuple[str, ...] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _units = ("stack", "layer", "kv_head")
    _holds = (KVHead,)
    _per_row = ("kv", "losses", "mass", "null", "each")

    @property
    def per_prompt(self) -> Float[np.ndarray, "kv_head prompt"]:  # type: ignore[override]
        """Loss of every head with the smallest window on every prompt."""
        return self.losses[:, 0]

    def budgets(
        self, max_loss: float | None = None, draws: int = 500, seed: int = 0
    ) -> Float[np.ndarray, "kv_head 3"]:
        """Return the tokens each cache needs for a loss of at most `max_loss`, with 95 % interval.

        The budget is the smallest measured window from which on every larger one loses at most
        `max_loss` on average over prompts; the number of all tokens where none does. The interval
        comes from resampling prompts (whole clusters).

        Args:
            max_loss: bound in nats per token; by default that of the cards.
            draws: bootstrap draws.
            seed: seed of the draws.

        Raises:
            OptionError: draws is below 1.
        """
        if draws < 1:
            raise OptionError(f"draws={draws}: at least one is needed")
        bound = self.max_loss if max_loss is None else max_loss
        prompts = self.losses.shape[2]
        labels = self.clusters or tuple(map(str, range(prompts)))
        units, which = np.unique(np.array(labels), return_inverse=True)
        weights = redraw_counts(len(units), draws, np.random.default_rng(seed))[:, which]
        weights = weights / weights.sum(1, keepdims=True)
        drawn = _budget(np.einsum("hwp,dp->dhw", self.losses, weights), bound, self)
        middle = _budget(self.losses.mean(-1), bound, self)
        low, high = percentile_interval(drawn, axis=0)
        return np.stack([middle, np.minimum(low, middle), np.maximum(high, middle)], 1)

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame([h._asdict() for h in self.kv], columns=list(self._units))
        found = [cluster_summary(x[:, None], self.clusters) for x in self.per_prompt]
        budget = self.budgets() if len(self.kv) else np.zeros((0, 3))
        return frame.assign(
            metric=f"loss of a cache of {self.sink}+{self.recents[0]} tokens",
            score=[float(x.score[0]) for x in found],
            sem=[float(x.sem[0]) for x in found],
            n=[x.n for x in found],
            clusters=[x.clusters for x in found],
            null=self.null,
            unit="nats per token",
            keeps=[_kept(m, self) for m in self.mass],
            sink_mass=self.mass[:, 0],
            window_mass=self.mass[:, 1],
            far_mass=self.mass[:, 2],
            budget=budget[:, 0],
            budget_low=budget[:, 1],
            budget_high=budget[:, 2],
            token_bytes=list(self.each),
        )

    def __repr__(self) -> str:
        return (
            f"CacheCards of {len(self.kv)} key-value heads: sink {self.sink}, windows of "
            f"{', '.join(map(str, self.recents))} tokens on {self.losses.shape[2]} prompts"
        )


def _budget(
    losses: Float[np.ndarray, "*draw kv_head window"], bound: float, cards: CacheCards
) -> Float[np.ndarray, "*draw kv_head"]:
    """Return the tokens of the smallest window that, like all larger ones, loses little enough."""
    good = np.flip(np.logical_and.accumulate(np.flip(losses <= bound, -1), -1), -1)
    sizes = np.array([cards.sink + r for r in cards.recents], float)
    first = np.where(good.any(-1), good.argmax(-1), 0)
    return np.where(good.any(-1), sizes[first], float(cards.length))


def _kept(mass: Float[np.ndarray, " 3"], cards: CacheCards) -> str:
    """Describe where most of the attention lies."""
    names = (f"first {cards.sink}", f"last {cards.recents[0]}", "further tokens")
    order = np.argsort(-mass, kind="stable")
    return ", ".join(f"{names[i]} {mass[i]:.0%}" for i in order if mass[i] >= 0.05)


def window_sizes(recents: Sequence[int] | None, sink: int, prompts: Prompts) -> tuple[int, ...]:
    """Return the windows to measure: those given, or powers of two from 4 on that are shorter.

    Raises:
        OptionError: there are none, or one is below 1.
        PromptError: even the smallest is as long as the longest prompt.
    """
    longest = max(map(len, prompts.ids))
    if recents is None:
        recents = [2**k for k in range(2, 31) if sink + 2**k < longest] or [4]
    chosen = tuple(sorted({int(r) for r in recents}))
    if not chosen:
        raise OptionError("recents is empty; give at least one number of recent tokens")
    require_longer(prompts, Window(sink, chosen[0]))
    return tuple(r for r in chosen if sink + r < longest)


@takes_model
def cache_cards(
    model: Model,
    prompts: Any = None,
    *,
    sink: int = 4,
    recents: Sequence[int] | None = None,
    max_loss: float = 0.01,
    null: str = "random-init",
    scored: int | None = None,
    batch_size: int = 16,
    seed: int = 0,
    progress: Progress | None = None,
) -> CacheCards:
    """Measure, for every key-value head, the loss when its cache keeps a sink and a window.

    The model runs with one head's cache cut, for each window in turn; the increase of the mean loss
    per token is measured on every prompt, not estimated.

    Args:
        model: a language model.
        prompts: texts, ids or `Prompts`; 32 prompts of random tokens repeated twice by default. A
            head whose far keys these prompts do not use seems to need nothing: use texts of the
            kind and length that the cache will hold.
        sink: first tokens that every cut cache keeps.
        recents: numbers of last tokens to try; powers of two from 4 by default.
        max_loss: bound of the budget, in nats per token.
        null: "random-init" measures random weights too, or "none".
        scored: number of last tokens of each prompt that count in the loss; all by default.
        batch_size: prompts per forward pass.
        seed: seed of the default prompts and the random weights.
        progress: callback with the name of the step, the steps done and their total.

    Raises:
        OptionError: the model keeps no cache or has no next-token output, or an option is wrong.
        PromptError: the prompts are as short as the smallest window.

    Unit: nats per token.

    Cost: One forward pass of the prompts per key-value head and window; one more per head for the
    null.

    Null: the same cut on random weights.

    Not for: the loss of several cuts together, which is not their sum: see `cache_plan`.

    Reference: this project.
    """
    if null not in ("random-init", "none"):
        raise OptionError(f"null={null!r} is not known; known: random-init, none")
    given = repeats(model, n=32, seed=seed) if prompts is None else Prompts.of(prompts, model)
    heads, progress = kv_heads(model), progress or silent
    sizes = window_sizes(recents, sink, given)
    losses = CutLosses(model, given, scored, batch_size)
    found = np.zeros((len(heads), len(sizes), len(given)))
    for at, head in enumerate(heads):
        for place, recent in enumerate(sizes):
            found[at, place] = losses({head: Window(sink, recent)})
        progress("cards", at + 1, len(heads))
    beside = np.full(len(heads), np.nan)
    if null == "random-init":
        other = CutLosses(random_init(model, seed), given, scored, batch_size)
        for at, head in enumerate(heads):
            beside[at] = other({head: Window(sink, sizes[0])}).mean()
            progress("null", at + 1, len(heads))
    each = token_bytes(model)
    made = result_provenance(
        model,
        "interp.cache.cache_cards",
        given,
        seed=seed,
        sink=sink,
        recents=sizes,
        max_loss=max_loss,
        null=null,
        scored=scored,
    )
    return CacheCards(
        heads,
        sink,
        sizes,
        found,
        attention_parts(model, given, Window(sink, sizes[0]), batch_size),
        beside,
        max_loss,
        max(map(len, given.ids)),
        tuple(each[h] for h in heads),
        given.clusters,
        made,
    )


def attention_parts(
    model: Model, prompts: Prompts, window: Window, batch_size: int = 16
) -> Float[np.ndarray, "kv_head 3"]:
    """Return each head's attention to the sink, to the window besides, and to other tokens.

    Means over real rows of all prompts and over the query heads of a group, in blocks of rows.
    """
    total: dict[Site, Tensor] = {}
    count: dict[Site, float] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if not site.causal:
            return
        order = (real.long().cumsum(1) - 1)[:, None]
        size = max(1, BLOCK // (call.z.shape[0] * call.n_heads * call.v.shape[2]))
        for start in range(0, call.z.shape[2], size):
            rows = torch.arange(start, min(start + size, call.z.shape[2]), device=call.z.device)
            pattern = call.pattern(rows).double() * real[:, None, rows, None]
            first = order[:, :, None, :] < window.sink
            near = (order[:, :, rows, None] - order[:, :, None, :] < window.recent) & ~first
            parts = [(pattern * part).sum((0, 2, 3)) for part in (first, near, ~(first | near))]
            each = torch.stack(parts, -1).unflatten(0, (site.n_kv_heads, -1)).mean(1)
            total[site] = total[site] + each if site in total else each
        count[site] = count.get(site, 0.0) + float(real.sum())

    for batch in model.batches(prompts, batch_size):
        model.read(batch, visit, last=1)
    return np.concatenate([(total[s] / count[s]).cpu().numpy() for s in cached_sites(model)])
