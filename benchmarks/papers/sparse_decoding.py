"""Claims on attention to few keys: which keys of a query are chosen, and by what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from interp.heads.geometry.token_similarity import opened
from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from papers.evicting import KINDS, Keep, best, own_keys, rise
from papers.finding import Numbers, on_decoders
from papers.fitting import step_down
from papers.hosts import Host


def top(score: Tensor, call: Call, number: int) -> Tensor:
    """Return each query's best keys by a score, of those that it sees."""
    return best(score.masked_fill(~call.visible(), -torch.inf), number)


def _key_axes(host: Host) -> dict[int, Tensor]:
    """Return the principal axes of each head's keys on other texts, the first in front."""
    held = host.model.capture(host.texts(32, judged=False), ["k"])
    found = {}
    for site in host.model.sites:
        x = held["k", site.layer].transpose(0, 1).flatten(1, 2)
        found[site.layer] = torch.linalg.svd(x - x.mean(1, keepdim=True), full_matrices=False).Vh
    return found


@on_decoders("Loki")
def loki(host: Host) -> Numbers:
    """Rank keys by 4 of 16 principal directions, and attend in full to the best quarter."""
    axes = _key_axes(host)

    def by(directions: Callable[[Site], Tensor]) -> Keep:
        def keep(call: Call, site: Site) -> Tensor:
            few = repeat_kv(directions(site)[None], site.n_heads)  # [1, head, 4, d]
            k = repeat_kv(own_keys(call), site.n_heads)
            near = call.q @ few.mT @ (k @ few.mT).mT  # type: ignore[operator]
            return top(near, call, near.shape[-1] // 4)

        return keep

    def random(site: Site) -> Tensor:
        draw = torch.Generator().manual_seed(site.layer)
        return torch.linalg.qr(torch.randn(site.n_kv_heads, 16, 4, generator=draw)).Q.mT

    for kind in KINDS:
        main = rise(host, kind, by(lambda site: axes[site.layer][:, :4]))
        yield from (main, rise(host, kind, by(random)) - main)


def first_and_last(call: Call, kept: int, from_query: int = 0, sink: int = 4) -> Tensor:
    """Return the first and the last keys of each query; queries before `from_query` see all."""
    at = torch.arange(call.z.shape[2])
    seen = (at < sink) | (at[:, None] - at < kept - sink) | (at[:, None] < from_query)
    return seen[None, None].expand(*call.z.shape[:2], -1, -1)


@on_decoders("TidalDecode", layers=4)
def tidal(host: Host) -> Numbers:
    """Choose an eighth of the keys in two layers, and let the layers after them reuse the choice.

    The first third of the layers attends to all keys, as do the two layers that choose.
    """
    kept, n = host.length // 8, host.layers
    whole, choosing = range(n // 3), (n // 3, n * 2 // 3)

    chosen: dict[int, Tensor] = {}

    def reusing(call: Call, site: Site) -> Tensor:
        everything = call.visible().expand(*call.z.shape[:2], -1, -1)
        if site.layer in choosing:
            shared = call.pattern().sum(1, keepdim=True)
            chosen[0] = top(shared, call, kept).expand_as(everything)
        return everything if site.layer in (*whole, *choosing) else chosen[0]

    def window(call: Call, site: Site) -> Tensor:
        full = site.layer in (*whole, *choosing)
        return first_and_last(call, call.z.shape[2] if full else kept)

    for kind in KINDS:
        ours = rise(host, kind, reusing)
        yield from (ours, rise(host, kind, window) - ours)


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


@on_decoders("AttentionPredictor")
def predicted_keys(host: Host) -> Numbers:
    """Predict the next row from the last 8 rows; attention that a tenth of the keys receives."""
    history, n = 8, host.length * 5 // 6
    kept = n // 10

    def patterns(rows: list[list[int]]) -> Tensor:
        held = host.model.capture(rows, ["pattern"])
        return torch.cat([held["pattern", s.layer][:, :, :n, :n] for s in host.model.sites], 1)

    learned, judged = patterns(host.texts(32, False)), patterns(host.texts(32))
    torch.manual_seed(0)
    net, draw = _NextRow(history), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(400):
        row, head = (torch.randint(size, (64,), generator=draw) for size in learned.shape[:2])
        at = int(torch.randint(32, n - 1, (1,), generator=draw))
        logits = net(learned[row, head, at - history + 1 : at + 1])[:, : at + 1]
        wanted = learned[row, head, at + 1, : at + 1]
        wanted = wanted / wanted.sum(-1, keepdim=True).clamp_min(1e-9)
        step_down(optimizer, -(wanted * logits.log_softmax(-1)).sum(-1).mean())
    found: dict[str, list[Tensor]] = {"net": [], "last": [], "sum": []}
    with torch.no_grad():
        for at in range(2 * n // 5, n - 1, 6):
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
    return net_mass - last, net_mass - total


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


@on_decoders("SubGen")
def clusters(host: Host) -> Numbers:
    """Estimate the last queries' attention from clusters of keys and sampled values, per head."""
    texts, n, queries, recent = 32, host.length, 8, 16
    held = host.model.capture(host.texts(texts), ["q", "k", "v", "z"])
    growth: list[Tensor] = []
    error: dict[str, list[float]] = {"clusters": [], "window": []}
    rng = np.random.default_rng(0)
    for site in host.model.sites:
        q, k, v, z = (held[name, site.layer].double() for name in ("q", "k", "v", "z"))
        new = opened(k, 0.7)  # [row, kv head, token]
        growth.append((new.sum(-1) / new[..., : n // 2].sum(-1)).log2().mean(1))  # doubled length
        k, v, new = (repeat_kv(x, site.n_heads) for x in (k, v, new))
        for row, h in np.ndindex(texts, site.n_heads):
            estimate, budget = _by_clusters(
                q[row, h, -queries:], k[row, h], v[row, h], new[row, h].numpy(), recent, rng
            )
            kept = np.r_[:4, n - (budget - 4) : n]
            plain = (q[row, h, -queries:] @ k[row, h, kept].mT / 4).softmax(-1) @ v[row, h, kept]
            true = z[row, h, -queries:]
            for name, x in (("clusters", estimate), ("window", plain)):
                error[name].append(float((x - true).norm() / true.norm()))
    by_text = {
        name: np.reshape(x, (len(host.model.sites), texts, -1)).mean((0, 2))
        for name, x in error.items()
    }
    longer = torch.stack(growth).mean(0).numpy()
    return longer, by_text["window"] - by_text["clusters"]
