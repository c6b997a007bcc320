"""Cache cards: what each key-value head keeps, and the measured loss of cutting its cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.bundled import texts_with
from interp.cache.bytes import token_bytes
from interp.cache.losses import CutLosses, require_longer
from interp.cache.windows import KVHead, Window, cached_sites, kv_heads
from interp.core.clusters import score_columns
from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.prompts import Prompts, repeats
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.core.statistics import percentile_interval, redraw_counts
from interp.core.ties import ordered, ranked
from interp.draw.parts import FoundPart, between, kv_place, result_part
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp.model.random_weights import random_init

if TYPE_CHECKING:
    from interp.model.model import Model

BLOCK = 2**21  # weights of a block of rows


def card_rows(
    heads: Sequence[KVHead],
    losses: Float[np.ndarray, "kv_head window prompt"],
    mass: Float[np.ndarray, "kv_head 3"],
    null: Float[np.ndarray, " kv_head"],
    each: Sequence[int],
    facts: Mapping[str, Any],
    made: Mapping[str, Any],
    clusters: tuple[str, ...] | None = None,
) -> ResultRows:
    """Return a row per key-value head; see `cache_cards` for the columns and facts."""
    units = ("stack", "layer", "kv_head")
    sink, recents = facts["sink"], facts["recents"]
    columns: dict[str, Any] = dict(zip(units, zip(*heads, strict=True), strict=True))
    columns["metric"] = f"loss of a cache of {sink}+{recents[0]} tokens"
    columns |= score_columns(losses[:, 0], clusters) | {
        "null": null,
        "unit": "nats per token",
        "keeps": [_kept(m, sink, recents[0]) for m in mass],
        "sink_mass": mass[:, 0],
        "window_mass": mass[:, 1],
        "far_mass": mass[:, 2],
    }
    cards = ResultRows(
        "CacheCards",
        columns,
        units,
        made,
        facts,
        losses[:, 0],
        arrays={"losses": losses},
        clusters=clusters,
    )
    names = ("budget", "budget_low", "budget_high")
    budgets = dict(zip(names, token_budgets(cards).T, strict=True))
    return replace(cards, columns=cards.columns | budgets | {"token_bytes": list(each)})


def token_budgets(
    cards: ResultRows, max_loss: float | None = None, *, n_boot: int = 500, seed: int = 0
) -> Float[np.ndarray, "kv_head 3"]:
    """Return the tokens each cache needs for a loss of at most `max_loss`, with 95 % interval.

    The budget is the smallest measured window from which on every larger one loses at most
    `max_loss` on average over prompts; the number of all tokens where none does. The interval
    comes from resampling prompts (whole clusters).
    """
    if n_boot < 1:
        raise OptionError(f"n_boot={n_boot}: at least one is needed")
    bound = cards.max_loss if max_loss is None else max_loss
    prompts = cards.losses.shape[2]
    labels = cards.clusters or tuple(map(str, range(prompts)))
    units, which = np.unique(np.array(labels), return_inverse=True)
    weights = redraw_counts(len(units), n_boot, np.random.default_rng(seed))[:, which]
    weights = weights / weights.sum(1, keepdims=True)
    drawn = _budget(np.einsum("hwp,dp->dhw", cards.losses, weights), bound, cards)
    middle = _budget(cards.losses.mean(-1), bound, cards)
    low, high = percentile_interval(drawn, axis=0)
    return np.stack([middle, np.minimum(low, middle), np.maximum(high, middle)], 1)


def _budget(
    losses: Float[np.ndarray, "*draw kv_head window"], bound: float, cards: ResultRows
) -> Float[np.ndarray, "*draw kv_head"]:
    """Return the tokens of the smallest window that, like all larger ones, loses little enough."""
    good = np.flip(np.logical_and.accumulate(np.flip(losses <= bound, -1), -1), -1)
    sizes = np.array([cards.sink + r for r in cards.recents], float)
    first = np.where(good.any(-1), good.argmax(-1), 0)
    return np.where(good.any(-1), sizes[first], float(cards.length))


def _kept(mass: Float[np.ndarray, " 3"], sink: int, recent: int) -> str:
    """Describe where most of the attention lies."""
    names = (f"first {sink}", f"last {recent}", "further tokens")
    order = np.array(ordered(mass), dtype=int)
    return ", ".join(f"{names[i]} {mass[i]:.0%}" for i in order if mass[i] >= 0.05)


def window_sizes(recent: Sequence[int] | None, sink: int, prompts: Prompts) -> tuple[int, ...]:
    """Return the windows to measure: those given, or powers of two from 4 on that are shorter."""
    longest = max(map(len, prompts.ids))
    if recent is None:
        recent = [2**k for k in range(2, 31) if sink + 2**k < longest] or [4]
    chosen = tuple(sorted({int(r) for r in recent}))
    if not chosen:
        raise OptionError("recent is empty; give at least one number of recent tokens")
    require_longer(prompts, Window(sink, chosen[0]))
    return tuple(r for r in chosen if sink + r < longest)


def usual_prompts(model: Model, n: int, seed: int) -> Prompts:
    """Return n of the texts that come with a model, drawn at random; else random tokens twice."""
    texts = texts_with(model)
    if not texts:
        return repeats(model, n=n, seed=seed)
    drawn = np.random.default_rng(seed).permutation(len(texts))[:n]
    return replace(Prompts.of([texts[at] for at in drawn], model), design="held-out texts")


@takes_model
def cache_cards(
    model: Model,
    prompts: Any = None,
    *,
    sink: int = 4,
    recent: Sequence[int] | None = None,
    max_loss: float = 0.01,
    null: str = "random-init",
    scored: int | None = None,
    batch_size: int = 16,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure, for every key-value head, the loss when its cache keeps a sink and a window.

    The model runs with one head's cache cut, for each window in turn; the increase of the mean loss
    per token is measured on every prompt, not estimated.

    Args:
        model: a language model.
        prompts: texts, ids or `Prompts`; by default 32 of the held-out texts that come with the
            model, or without such texts 32 prompts of random tokens repeated twice. A head whose
            far keys these prompts do not use seems to need nothing: use texts of the kind and
            length that the cache will hold.
        sink: first tokens that every cut cache keeps.
        recent: numbers of last tokens to try; powers of two from 4 by default.
        max_loss: bound of the budget, in nats per token.
        null: "random-init" measures random weights too, or "none".
        scored: number of last tokens of each prompt that count in the loss; all by default.
        batch_size: prompts per forward pass.
        seed: seed of the default prompts and the random weights.
        progress: callback with the name of the step, the steps done and their total.

    Returns:
        One row per key-value head: score, the loss with the smallest window, on each prompt;
        keeps, where most of its attention lies, as sink_mass, window_mass and far_mass; budget,
        budget_low and budget_high, the tokens its cache needs for max_loss (see `token_budgets`);
        token_bytes, the bytes of one token. Facts: sink; recents, the measured windows, ascending;
        max_loss; length, tokens of the longest prompt, the budget of a head that needs all. By
        row: losses, `[kv_head, window, prompt]`, the increase of the mean loss.

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
    tokenized = usual_prompts(model, 32, seed) if prompts is None else Prompts.of(prompts, model)
    heads, progress = kv_heads(model), progress or silent
    sizes = window_sizes(recent, sink, tokenized)
    losses = CutLosses(model, tokenized, scored, batch_size)
    cuts = [{head: Window(sink, last)} for head in heads for last in sizes]
    increases = losses.each(cuts, "cards", progress).reshape(len(heads), len(sizes), -1)
    beside = np.full(len(heads), np.nan)
    if null == "random-init":
        other = CutLosses(random_init(model, seed), tokenized, scored, batch_size)
        beside = other.each(cuts[:: len(sizes)], "null", progress).mean(1)
    each = token_bytes(model)
    provenance = result_provenance(
        model,
        "interp.cache.cache_cards",
        tokenized,
        seed=seed,
        sink=sink,
        recents=sizes,
        max_loss=max_loss,
        null=null,
        scored=scored,
    )
    mass = attention_parts(model, tokenized, Window(sink, sizes[0]), batch_size)
    facts = {
        "sink": sink,
        "recents": sizes,
        "max_loss": max_loss,
        "length": max(map(len, tokenized.ids)),
    }
    return card_rows(
        heads,
        increases,
        mass,
        beside,
        [each[h] for h in heads],
        facts,
        provenance,
        tokenized.clusters,
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


def cache_cards_summary(found: ResultRows) -> str:
    """Return the number of heads and prompts, and the measured windows."""
    return (
        f"CacheCards of {len(found)} key-value heads: sink {found.sink}, windows of "
        f"{', '.join(map(str, found.recents))} tokens on {found.losses.shape[2]} prompts"
    )


NAMED = 4  # heads that the sentence names


def cache_cards_part(found: ResultRows) -> FoundPart:
    """Return the tokens that the cache of each key-value head needs, with its measured loss."""
    frame: Any = found.to_pandas()
    window = f"{found.sink} first and {found.recents[0]} last tokens"
    notes: dict[tuple[str, int, int], str] = {}
    for row in frame.to_dict("records"):
        tokens = f"{row['budget']:g}{between(row['budget_low'], row['budget_high'])}"
        null = f", on random weights {row['null']:+.3g}" if row["null"] == row["null"] else ""
        notes[kv_place(row)] = (
            f"Its cache needs {tokens} of {found.length} tokens for a loss of at most "
            f"{found.max_loss:g} nats per token. With only the {window} the loss rises by "
            f"{row['score']:+.3g}{between(row['low'], row['high'])}{null}. Attention: "
            f"{row['keeps']}"
        )
    least = found.sink + found.recents[0]
    few = int((frame["budget"] <= least).sum())
    most: Any = ranked(frame, "budget").head(NAMED)
    sentence = "; ".join(
        f"layer {row['layer']}, key-value head {row['kv_head']}: {row['budget']:g}"
        f"{between(row['budget_low'], row['budget_high'])}"
        for row in most[most["budget"] > least].to_dict("records")
    )
    text = (
        f"{few} of {len(frame)} key-value heads need no more than the {window} for a loss of at "
        f"most {found.max_loss:g} nats per token, each cut alone, on {found.losses.shape[2]} "
        f"prompts of up to {found.length} tokens."
    )
    text += f" Most tokens: {sentence}." if sentence else ""
    return result_part(found, "cache", "What each cache must keep", text, by_kv=notes)


present("CacheCards", summary=cache_cards_summary, part=cache_cards_part)
