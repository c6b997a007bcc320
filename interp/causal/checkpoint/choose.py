"""Choice of the heads to remove: by name, by a ranking, or by learned gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.causal.comparison.ranking import Ranking
from interp.causal.game.players import Players
from interp.causal.gating.result import OPEN, LearnedGates
from interp.causal.importance import Importance
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.table import HeadTable
from interp.core.ties import ordered, ordered_by
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model

Removed = dict[Site, tuple[int, ...]]
"""For every attention, the heads to remove."""


def heads_by_name(model: Model, heads: Any, *, stack: str | None = None) -> Removed:
    """Return heads given by name, such as `["L0H1", "L3H0"]`."""
    chosen = Players.of(model, {"removed": heads}, stack=stack)
    heads_of_sites = {
        site: tuple(int(h) for h in (index >= 0).nonzero().flatten())
        for site, index in chosen.member.items()
    }
    return checked_removal(model, heads_of_sites)


def ranked_heads(
    model: Model,
    ranking: Importance | HeadTable | LearnedGates | Sequence[Any],
    keep: int,
    *,
    equal: bool = False,
) -> Removed:
    """Return the heads that are not among the best `keep` of a ranking.

    Args:
        model: the model.
        ranking: an importance, a table with one metric, gates, or players, most important first.
        keep: number of players to keep.
        equal: keep equally many in every attention, and equally many query heads in each kv group
            that is kept, so that the config of many families can express the sizes. Whole groups
            go, or single heads of every group, or both: the sum of the scores of the kept heads is
            the largest possible (of their ranks, if the ranking is a list of names).

    Raises:
        OptionError: the ranking is of another model (its hash differs), `keep` is out of range, or
            cannot be the same in every attention.
    """
    order = _order(model, ranking)
    n = len(order)
    if not 0 < keep < n:
        raise OptionError(f"keep={keep} of {n}; keep at least 1 and remove at least 1")
    if not equal:
        gone = [head for part, _ in order[keep:] for head in part]
        return checked_removal(model, _by_site(model, gone))
    worth = {head: score / len(part) for part, score in order for head in part}
    return checked_removal(model, _equal(model, worth, keep * _n_heads(model) / n))


def _n_heads(model: Model) -> int:
    return sum(site.n_heads for site in model.sites)


def _equal(model: Model, worth: Mapping[Head, float], keep: float) -> Removed:
    """Keep the heads of the largest worth that leave equal sizes in every attention and group."""
    sites = model.sites
    if len(worth) != _n_heads(model):
        raise OptionError("an equal number per layer needs a ranking of all heads of the model")
    if len({(s.n_heads, s.n_kv_heads) for s in sites}) > 1:
        raise OptionError(
            f"keep={keep:g} cannot be equal in attentions with other numbers of heads or kv groups"
        )
    n_groups, size = sites[0].n_kv_heads, sites[0].n_heads // sites[0].n_kv_heads
    pairs = [(g, k) for k in range(size, 0, -1) for g in range(1, n_groups + 1)]
    fitting = [(g, k) for g, k in pairs if g * k * len(sites) == keep]
    if not fitting:
        can = ", ".join(str(x * len(sites)) for x in sorted({g * k for g, k in pairs}))
        raise OptionError(
            f"keep={keep:g} cannot be equal in {len(sites)} attentions with {n_groups} kv groups of"
            f" {size} query heads; keep one of {can} heads"
        )
    at = {site: {h.head: x for h, x in worth.items() if _at(model, h) == site} for site in sites}
    chosen = [{site: _best(site, at[site], *pair) for site in sites} for pair in fitting]
    best = ordered_by(
        chosen, lambda kept: sum(at[s][h] for s, heads in kept.items() for h in heads)
    )[0]
    return {s: tuple(h for h in range(s.n_heads) if h not in kept) for s, kept in best.items()}


def _best(site: Site, worth: Mapping[int, float], n_groups: int, size: int) -> list[int]:
    """Return the best `size` heads of each of the best `n_groups` kv groups."""
    groups: dict[int, list[int]] = {}
    for h in ordered_by(worth, worth.__getitem__):
        groups.setdefault(site.kv_head(h), []).append(h)
    tops = [heads[:size] for heads in groups.values()]
    tops = ordered_by(tops, lambda heads: sum(worth[h] for h in heads))
    return [h for heads in tops[:n_groups] for h in heads]


def gated_parts(model: Model, gates: LearnedGates) -> tuple[Removed, tuple[str, ...]]:
    """Return the heads and the labels of the MLPs whose mean gate is at most a half."""
    require_same_model(model, gates.provenance.get("content_hash"), "the gates")
    gone: list[Head] = []
    mlps: list[str] = []
    for label, heads, gate in zip(gates.labels, gates.heads_of, gates.score, strict=True):
        if gate > OPEN:
            continue
        gone += [_head(model, h) for h in heads]
        mlps += [] if heads else [label]
    if not gone and not mlps:
        raise OptionError("the gates keep everything; raise the penalty")
    return checked_removal(model, _by_site(model, gone), mlps), tuple(mlps)


def checked_removal(model: Model, removed: Removed, mlps: Sequence[str] = ()) -> Removed:
    """Get the removal if it leaves at least one head of the model and removes at least one part."""
    n = sum(len(x) for x in removed.values())
    total = sum(s.n_heads for s in model.sites)
    if not n and not mlps:
        raise OptionError("no head is to be removed; name at least one")
    if n == total:
        raise OptionError(f"all {total} heads are to be removed; keep at least one")
    return {site: tuple(sorted(removed.get(site, ()))) for site in model.sites}


def head_names(removed: Removed, several: bool) -> list[str]:
    """Return the names of removed heads; with the stack if the model has several."""
    return [
        f"{site.stack} {Head(site.layer, h)}" if several else str(Head(site.layer, h))
        for site, heads in removed.items()
        for h in heads
    ]


def heads_from_names(model: Model, names: Sequence[str], mlps: Sequence[str] = ()) -> Removed:
    """Return the heads of `head_names`, for a certificate that is verified."""
    return checked_removal(model, _by_site(model, [_head(model, x) for x in names]), mlps)


def require_same_model(model: Model, found: Any, what: str) -> None:
    """Raise unless a hash is that of the model."""
    if found is not None and found != model.content_hash:
        raise OptionError(
            f"{what} were made on another model: their weights have the hash {str(found)[:12]}, "
            f"those of {model.name} {model.content_hash[:12]}; compute them on this model"
        )


def _order(model: Model, ranking: Any) -> list[tuple[list[Head], float]]:
    """Return heads and score of every player, the most important player first."""
    if isinstance(ranking, LearnedGates):
        require_same_model(model, ranking.provenance.get("content_hash"), "the gates")
        heads = dict(zip(ranking.labels, ranking.heads_of, strict=True))
        score = dict(zip(ranking.labels, ranking.score.tolist(), strict=True))
        ordered_parts = [([_head(model, h) for h in heads[x]], score[x]) for x in ranking.order()]
        if not all(part for part, _ in ordered_parts):
            raise OptionError("the gates include MLPs; only heads can be removed")
        return ordered_parts
    if isinstance(ranking, (Importance, HeadTable)):
        ranked = Ranking.of(ranking)
        require_same_model(model, ranked.about.get("content_hash"), "the scores")
        best = ordered(ranked.helps)
        score = ranked.helps.tolist()
        if ranked.players is None:
            return [([_head(model, ranked.labels[i])], score[i]) for i in best]
        parts = {i: ranked.players.heads_of(i) for i in best}
        return [([Head(s.layer, h, s.stack) for s, h in parts[i]], score[i]) for i in best]
    return [([_head(model, x)], float(-at)) for at, x in enumerate(ranking)]


def _head(model: Model, name: Any) -> Head:
    stack, _, text = str(name).rpartition(" ") if isinstance(name, str) else ("", "", name)
    head = Head.parse(text)
    head = Head(head.layer, head.head, stack) if stack else head
    _at(model, head)
    return head


def _at(model: Model, head: Head) -> Site:
    fits = [
        s
        for s in model.sites
        if s.layer == head.layer and head.head < s.n_heads and head.stack in (None, s.stack)
    ]
    if len(fits) != 1:
        raise OptionError(f"{model.name} has {len(fits)} heads named {head}; it needs one")
    return fits[0]


def _by_site(model: Model, heads: Sequence[Head]) -> Removed:
    by_site: dict[Site, list[int]] = {}
    for head in heads:
        mine = by_site.setdefault(_at(model, head), [])
        if head.head in mine:
            raise OptionError(f"{head} is named twice")
        mine.append(head.head)
    return {site: tuple(x) for site, x in by_site.items()}
