"""Claims on attention to few keys: which keys of a query are chosen, by what, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from interp.heads.geometry._clusters import opened
from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from papers.evicting import (
    FURTHER,
    best,
    copied_rows,
    deep_hosts,
    hiding,
    host,
    loss,
    own_keys,
    text_rows,
)
from papers.finding import Finding, claim, exact, mean

HOST = "bundled:induction (two layers, learned induction heads)"
DEEP = "models of six layers of four heads, three seeds, trained on text and copies"
NOTICED = 0.1  # nats: a rise of the loss from which it counts as lost
TEXTS = "64 texts of 192 tokens"
SAMPLES = {"text": TEXTS, "copies": "64 copies of 60 random tokens"}


def _top(score: Tensor, call: Call, number: int) -> Tensor:
    """Return each query's best keys by a score, of those that it sees."""
    return best(score.masked_fill(~call.visible(), -torch.inf), number)


def _rise(kind: str, edit: Edit) -> np.ndarray:
    """Return the rise of the loss on text or copies, per row."""
    rows, scored = _rows(kind)
    return loss(host(), rows, scored, edit) - _full(kind)


def _rows(kind: str) -> tuple[list[list[int]], int]:
    return (text_rows(64), 128) if kind == "text" else (copied_rows(64, 0), 59)


@cache
def _full(kind: str) -> np.ndarray:
    return loss(host(), *_rows(kind))


@cache
def _key_axes() -> dict[int, Tensor]:
    """Return the principal axes of each head's keys on other texts, the first in front."""
    held = host().capture(text_rows(32, judged=False), ["k"])
    found = {}
    for site in host().sites:
        x = held["k", site.layer].transpose(0, 1).flatten(1, 2)
        found[site.layer] = torch.linalg.svd(x - x.mean(1, keepdim=True), full_matrices=False).Vh
    return found


@claim("Loki", HOST)
def loki() -> list[Finding]:
    """Rank keys by 4 of 16 principal directions, and attend in full to the best quarter."""
    axes = _key_axes()

    def by(directions: Callable[[Site], Tensor]) -> Edit:
        def keep(call: Call, site: Site) -> Tensor:
            few = repeat_kv(directions(site)[None], site.n_heads)  # [1, head, 4, d]
            k = repeat_kv(own_keys(call), site.n_heads)
            near = call.q @ few.mT @ (k @ few.mT).mT  # type: ignore[operator]
            return _top(near, call, near.shape[-1] // 4)

        return hiding(host(), keep, "low-rank keys")

    def random(site: Site) -> Tensor:
        draw = torch.Generator().manual_seed(site.layer)
        return torch.linalg.qr(torch.randn(site.n_kv_heads, 16, 4, generator=draw)).Q.mT

    found = []
    for kind, rows in SAMPLES.items():
        main, other = (_rise(kind, by(d)) for d in (lambda site: axes[site.layer][:, :4], random))
        found += [
            mean(f"{kind}: rise of the loss", main, "nats", "below", NOTICED, rows),
            mean(f"{kind}: random directions minus principal ones", other - main, "nats", "above",
                 0, rows),
        ]  # fmt: skip
    return found


BLOCK = 8  # tokens
DIFFER = 0.4  # self-similarity below which all blocks of a block's tokens are computed
MASSES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)
ERROR = 0.07  # of outputs on other rows, from which a head's mass is found, as published


def _predicted_blocks(q: Tensor, k: Tensor, mass: Tensor | float) -> Tensor:
    """Return which blocks are computed, by softmax over mean queries and mean keys of blocks."""
    n = q.shape[2] // BLOCK
    parts = [x[:, :, : n * BLOCK].unflatten(2, (n, BLOCK)) for x in (q, k)]
    units = [nn.functional.normalize(x, dim=-1) for x in parts]
    alike_q, alike_k = ((x @ x.mT).mean((-1, -2)) for x in units)
    means = [x.mean(3) for x in parts]
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    near = (means[0] @ means[1].mT * q.shape[-1] ** -0.5).masked_fill(later, -torch.inf).softmax(-1)
    order = near.sort(-1, descending=True)
    needed = order.values.cumsum(-1) - order.values < mass
    kept = torch.zeros_like(needed).scatter(-1, order.indices, needed)
    kept |= (alike_q < DIFFER)[..., None] | (alike_k < DIFFER)[:, :, None]
    return (kept | torch.eye(n, dtype=torch.bool)) & ~later


def _of_tokens(kept: Tensor, n: int) -> Tensor:
    wide = kept.repeat_interleave(BLOCK, 2).repeat_interleave(BLOCK, 3)
    seen = torch.ones(*wide.shape[:2], n, n, dtype=torch.bool)
    seen[:, :, : wide.shape[2], : wide.shape[3]] = wide
    return seen


def _masses(rows: list[list[int]]) -> dict[int, Tensor]:
    """Return per head the smallest mass whose output error on some rows is within the bound."""
    held = host().capture(rows, ["q", "k", "v", "z", "scores"])
    found = {}
    for site in host().sites:
        q, k, v, z, scores = (held[x, site.layer] for x in ("q", "k", "v", "z", "scores"))
        k, v = repeat_kv(k, site.n_heads), repeat_kv(v, site.n_heads)
        best_mass = torch.ones(site.n_heads, 1, 1)
        for mass in MASSES[::-1]:
            kept = _of_tokens(_predicted_blocks(q, k, mass), q.shape[2])
            lowest = torch.finfo(scores.dtype).min
            out = scores.masked_fill(~kept, lowest).softmax(-1) @ v
            error = (out - z).abs().sum((0, 2, 3)) / z.abs().sum((0, 2, 3))
            best_mass[error <= ERROR] = mass
        found[site.layer] = best_mass
    return found


@claim("SpargeAttn", HOST)
def sparge() -> list[Finding]:
    """Skip blocks of 8 x 8 by mean queries and keys, unless a block's tokens differ; or at random.

    Each head's mass is the smallest with an error of its output up to 7 % on other rows.
    """
    masses = {"text": _masses(text_rows(24, False)), "copies": _masses(copied_rows(24, 1))}
    shares: list[float] = []
    found = []
    for kind, rows in SAMPLES.items():

        def chosen(call: Call, site: Site, kind: str = kind) -> Tensor:
            k = repeat_kv(own_keys(call), site.n_heads)
            return _predicted_blocks(call.q, k, masses[kind][site.layer])  # type: ignore[arg-type]

        def ours(call: Call, site: Site) -> Tensor:
            kept = chosen(call, site)
            n = kept.shape[-1]
            shares.append(1 - float(kept.sum((-1, -2)).float().mean()) / (n * (n + 1) / 2))
            return _of_tokens(kept, call.z.shape[2])

        def random(call: Call, site: Site) -> Tensor:
            kept = chosen(call, site)
            number = kept.sum((-1, -2), keepdim=True) - kept.shape[-1]
            draw = torch.rand(kept.shape, generator=torch.Generator().manual_seed(site.layer))
            flat = draw.masked_fill(~torch.ones_like(kept[0, 0]).tril(-1), -1).flatten(2)
            drawn = best(flat, number[..., 0]).unflatten(-1, kept.shape[-2:])
            return _of_tokens(drawn | torch.eye(kept.shape[-1], dtype=torch.bool), call.z.shape[2])

        own, other = (_rise(kind, hiding(host(), f, "blocks")) for f in (ours, random))
        found += [
            mean(f"{kind}: rise of the loss", own, "nats", "below", NOTICED, rows),
            mean(f"{kind}: as many random blocks minus these", other - own, "nats", "above", 0,
                 rows),
        ]  # fmt: skip
    skipped = exact("share of blocks below the diagonal that is skipped", float(np.mean(shares)),
                    "share", "above", 0.25, "all heads, 64 texts and 64 copies")  # fmt: skip
    return [skipped, *found]


def _span_numbers(call: Call, width: int = 4) -> Tensor:
    """Number the triangles of a layer: a span ends where less attention crosses than around it."""
    pattern = call.pattern().mean(1)
    n = pattern.shape[-1]
    crossing = torch.stack([
        pattern[:, at : at + width, max(0, at - width) : at].sum((-1, -2)) for at in range(n)
    ], 1)  # fmt: skip
    around = nn.functional.avg_pool1d(crossing[:, None], 9, 1, 4, count_include_pad=False)[:, 0]
    before = nn.functional.pad(crossing[:, :-1], (1, 0), value=torch.inf)
    after = nn.functional.pad(crossing[:, 1:], (0, 1), value=torch.inf)
    ends = (crossing < around) & (crossing <= before) & (crossing < after)
    return ends.long().cumsum(1)


@claim("Ltri-LLM", HOST)
def triangles() -> list[Finding]:
    """Let the last queries retrieve spans by their mean key: triangles, or equal blocks."""
    size, kept, recent = 128, 40, 16

    def retrieving(spans: Callable[[Call], Tensor]) -> Callable[[Call, Site], Tensor]:
        def keep(call: Call, site: Site) -> Tensor:
            number = spans(call)
            member = nn.functional.one_hot(number).float()  # [row, token, span]
            k = repeat_kv(own_keys(call), site.n_heads)
            mean_key = member.mT[:, None] @ k / member.sum(1)[:, None, :, None].clamp_min(1)
            near = (call.q @ mean_key.mT) @ member.mT[:, None]  # type: ignore[operator]
            n = near.shape[-1]
            at = torch.arange(n)
            always = (at < 4) | (at[:, None] - at < recent)
            chosen = _top(near.masked_fill(always, torch.inf), call, kept)
            return chosen | (at[:, None] < size)  # the first queries see everything

        return keep

    def blocks(call: Call) -> Tensor:
        number = _span_numbers(call)
        length = number.shape[1] / (number[:, -1:] + 1)
        return (torch.arange(number.shape[1]) / length).long()

    rows = text_rows(64)
    ours, theirs, window = (
        loss(host(), rows, FURTHER, hiding(host(), keep, "spans"))
        for keep in (
            retrieving(_span_numbers),
            retrieving(blocks),
            lambda call, site: _window(call, kept, size),
        )
    )
    return [
        mean("loss of first and last tokens minus retrieved triangles", window - ours, "nats",
             "above", 0, TEXTS),
        mean("loss of retrieved equal blocks minus retrieved triangles", theirs - ours, "nats",
             "above", 0, TEXTS),
    ]  # fmt: skip


def _window(call: Call, kept: int, from_query: int = 0, sink: int = 4) -> Tensor:
    at = torch.arange(call.z.shape[2])
    seen = (at < sink) | (at[:, None] - at < kept - sink) | (at[:, None] < from_query)
    return seen[None, None].expand(*call.z.shape[:2], -1, -1)


@claim("TidalDecode", DEEP)
def tidal() -> list[Finding]:
    """Choose 12 of up to 90 keys in two layers, and let the layers after them reuse the choice."""
    kept, whole, choosing = 12, (0, 1), (2, 4)

    def reusing() -> Callable[[Call, Site], Tensor]:
        chosen: dict[int, Tensor] = {}

        def keep(call: Call, site: Site) -> Tensor:
            everything = call.visible().expand(*call.z.shape[:2], -1, -1)
            if site.layer in whole:
                return everything
            if site.layer in choosing:
                shared = call.pattern().sum(1, keepdim=True)
                chosen[0] = _top(shared, call, kept).expand_as(everything)
                return everything
            return chosen[0]

        return keep

    def window(call: Call, site: Site) -> Tensor:
        full = site.layer in (*whole, *choosing)
        return _window(call, call.z.shape[2] if full else kept)

    found = []
    for kind, rows, scored in (
        ("text", text_rows(32, length=96, wide=False), 64),
        ("copies", copied_rows(32, 0, 45, wide=False), 44),
    ):
        full, ours, theirs = (
            np.mean([loss(m, rows, scored, *edits(m)) for m in deep_hosts()], 0)
            for edits in (
                lambda m: (),
                lambda m: (hiding(m, reusing(), "reused keys"),),
                lambda m: (hiding(m, window, "first and last"),),
            )
        )
        each = "32 rows, mean over three models"
        found += [
            mean(f"{kind}: rise of the loss", ours - full, "nats", "below", NOTICED, each),
            mean(f"{kind}: first and last keys minus reused ones", theirs - ours, "nats", "above",
                 0, each),
        ]  # fmt: skip
    return found


class _NextRow(nn.Module):
    """Predict the next row of a pattern from the last rows by convolution over steps and keys."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, (rows, 7), padding=(0, 3))
        self.last = nn.Conv1d(16, 1, 7, padding=3)

    def forward(self, rows: Tensor) -> Tensor:
        """Return logits of keys from `[batch, step, key]`."""
        hidden = self.first((rows[:, None] + 1e-4).log())[:, :, 0].relu()
        return self.last(hidden)[:, 0]


@claim("AttentionPredictor", HOST)
def predicted_keys() -> list[Finding]:
    """Predict the next row from the last 8 rows; attention that 16 keys chosen by it receive."""
    history, kept, n = 8, 16, 160

    def patterns(rows: list[list[int]]) -> Tensor:
        held = host().capture(rows, ["pattern"])
        return torch.cat([held["pattern", s.layer][:, :, :n, :n] for s in host().sites], 1)

    learned, judged = patterns(text_rows(32, False, 160)), patterns(text_rows(32, True, 160))
    torch.manual_seed(0)
    net, draw = _NextRow(history), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(400):
        row, head = (torch.randint(size, (64,), generator=draw) for size in learned.shape[:2])
        at = int(torch.randint(32, n - 1, (1,), generator=draw))
        logits = net(learned[row, head, at - history + 1 : at + 1])[:, : at + 1]
        wanted = learned[row, head, at + 1, : at + 1]
        wanted = wanted / wanted.sum(-1, keepdim=True).clamp_min(1e-9)
        error = -(wanted * logits.log_softmax(-1)).sum(-1).mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    steps = range(64, n - 1, 6)
    found: dict[str, list[Tensor]] = {"net": [], "last": [], "sum": []}
    with torch.no_grad():
        for at in steps:
            flat = judged.flatten(0, 1)
            wanted = judged[:, :, at + 1, : at + 1]
            scores = {
                "net": net(flat[:, at - history + 1 : at + 1])[:, : at + 1],
                "last": flat[:, at, : at + 1],
                "sum": flat[:, : at + 1, : at + 1].sum(1),
            }
            for name, x in scores.items():
                top = x.unflatten(0, judged.shape[:2]).topk(kept).indices
                found[name].append(wanted.gather(-1, top).sum(-1).mean(1))
    net_mass, last, total = (torch.stack(x).mean(0).numpy() for x in found.values())
    each = "32 texts, mean over all heads and steps"
    return [
        mean("attention caught by predicted keys minus by those of the last step",
             net_mass - last, "attention", "above", 0, each),
        mean("attention caught by predicted keys minus by summed attention",
             net_mass - total, "attention", "above", 0, each),
    ]  # fmt: skip


def _by_clusters(
    q: Tensor, k: Tensor, v: Tensor, new: np.ndarray, recent: int, rng: np.random.Generator
) -> tuple[Tensor, int]:
    """Return the estimate of the output, and the tokens of a plain cache of as many vectors.

    Recent tokens are kept. Of older ones, a random key of each cluster stands for the cluster in
    the sum of the weights, and half as many keys with their values, drawn by the squared norm of
    the value, estimate the weighted sum.
    """
    old = len(k) - recent
    starts = np.flatnonzero(new[:old])
    cluster = torch.cdist(k[:old], k[starts]).argmin(1).numpy()
    stands = np.array([rng.choice(np.flatnonzero(cluster == c)) for c in np.unique(cluster)])
    sizes = np.bincount(cluster, minlength=len(starts))[np.unique(cluster)]
    chance = v[:old].square().sum(-1).numpy() + 1e-12
    chance = chance / chance.sum()
    drawn = rng.choice(old, max(1, len(stands) // 2), p=chance)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    weight = (scores - scores.amax(-1, keepdim=True)).exp()
    total = weight[:, old:].sum(-1) + (weight[:, stands] * torch.tensor(sizes)).sum(-1)
    share = torch.tensor(1 / (chance[drawn] * len(drawn)))
    output = weight[:, old:] @ v[old:] + (weight[:, drawn] * share) @ v[drawn]
    return output / total[:, None], recent + (len(stands) + 2 * len(drawn)) // 2


@claim("SubGen", HOST)
def clusters() -> list[Finding]:
    """Estimate the last queries' attention from clusters of keys and sampled values, per head."""
    texts, n, queries = 32, 192, 8
    held = host().capture(text_rows(texts), ["q", "k", "v", "z"])
    growth: list[Tensor] = []
    error: dict[str, list[float]] = {"clusters": [], "window": []}
    rng = np.random.default_rng(0)
    for site in host().sites:
        q, k, v, z = (held[name, site.layer].double() for name in ("q", "k", "v", "z"))
        new = opened(k, 0.7)  # [row, kv head, token]
        growth.append((new.sum(-1) / new[..., : n // 2].sum(-1)).log2().mean(1))  # doubled length
        k, v = repeat_kv(k, site.n_heads), repeat_kv(v, site.n_heads)
        new = repeat_kv(new, site.n_heads).numpy()
        recent = 16
        for row in range(texts):
            for h in range(site.n_heads):
                estimate, budget = _by_clusters(q[row, h, -queries:], k[row, h], v[row, h],
                                                new[row, h], recent, rng)  # fmt: skip
                kept = np.r_[:4, n - (budget - 4) : n]
                plain = (q[row, h, -queries:] @ k[row, h, kept].mT / 4).softmax(-1) @ v[
                    row, h, kept
                ]
                true = z[row, h, -queries:]
                for name, x in (("clusters", estimate), ("window", plain)):
                    error[name].append(float((x - true).norm() / true.norm()))
    by_text = {
        name: np.reshape(x, (len(host().sites), texts, -1)).mean((0, 2))
        for name, x in error.items()
    }
    return [
        mean("growth of the number of clusters with the length (exponent)",
             torch.stack(growth).mean(0).numpy(), "exponent", "below", 0.8, "32 texts, all heads"),
        mean("relative error of outputs, first and last tokens minus clusters",
             by_text["window"] - by_text["clusters"], "share", "above", 0, "32 texts, all heads"),
    ]  # fmt: skip
