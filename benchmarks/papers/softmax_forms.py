"""Claims on changed softmax attention, trained beside softmax: scores, gates, memories, powers."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats
from sklearn.datasets import load_digits
from torch import Tensor, nn

import interp
from papers.beside import ROWS, SOFTMAX, apart, behind, beside, loss, losses, maps
from papers.curves import in_range
from papers.finding import Numbers, claim, over_seeds
from papers.fitting import rules, step_down, without_positions
from training import alike

PAST = np.tril(np.ones((alike.LENGTH, alike.LENGTH), bool))  # [query, key]

beside("Knocking-heads", ["knocking_heads"])
beside("You Need to Pay", ["optimised_attention"], ["efficient_attention"], ["super_attention"])
beside("Prototypical Memory", ["prototype_memory"], ["prototype_memory", "memory_slots"])
beside("You Only Sample", ["hash_samples"], ["hash_samples", "hash_collisions"])
beside("Mega: Moving Average", ["moving_average"])
beside("Multi-Overlapped-Head", ["overlapping_heads"])
beside("Transformer-MGK", ["mixture_of_keys"], num_attention_heads=2, head_dim=16)
beside("Talking-heads attention", ["talking_heads"])
beside("Neural Attention: A Novel", ["neural_scores"])
beside("RCMHA", ["convolved_projections", "relative_bias"])


def text(form: str) -> list[list[int]]:
    """Return held-out rows of text."""
    return alike.asked_rows(form, "text", ROWS).given.tolist()


@claim("Quantizable Transformers")
def quantizable() -> Numbers:
    """The largest activation of a model, and what the changes cost on all three kinds of rows."""
    for form in ("clipped", "gated_output"):
        own, plain = over_seeds(_largest, form, SOFTMAX, seeds=alike.SEEDS)
        yield np.log(own / plain)
        yield behind(form)


def _largest(form: str, seed: int) -> float:
    found = interp.heads.outliers.layer_outliers(alike.loaded(form, seed), text(form))
    return found.model_wide("resid_post")["inf_norm"]


@claim("Normalized Attention Without")
def normalised_scores() -> Numbers:
    """The worst loss over rates of learning a quarter, once and four times the usual one."""
    return apart(_worst, "normalised_scores")


def _worst(form: str, seed: int) -> float:
    usual, found = alike.RATE, []
    try:
        for times in (0.25, 1, 4):
            alike.RATE = usual * times
            found.append(loss(alike.trained(form, seed)))
    finally:
        alike.RATE = usual
    return max(found)


@claim("More Expressive Attention")
def signed() -> Numbers:
    """Loss, and how alike the last layer's streams of different tokens are."""
    return behind("signed"), apart(_alike, "signed")


def _alike(form: str, seed: int) -> float:
    x = alike.loaded(form, seed).capture(text(form), ["resid_post"], layers=1)["resid_post", 1]
    x = nn.functional.normalize(x, dim=-1)
    n = x.shape[1]
    return float(((x @ x.mT).sum((-1, -2)) - n).mean() / (n * (n - 1)))


@claim("Weighted Grouped Query")
def weighted_groups() -> Numbers:
    """Learned weights of the heads of a group beside their plain mean, and beside softmax."""
    equal = []
    for seed in alike.SEEDS:
        model = alike.build("weighted_groups", seed=seed, gain=1.0, **alike.SIZES)
        for rule in rules(model):
            rule.share.data.fill_(0.5)
            rule.share.requires_grad_(False)
        equal.append(loss(alike.train(model, seed)))
    return losses("weighted_groups") - equal, behind("weighted_groups")


@claim("Softplus Attention")
def softplus_power() -> Numbers:
    """How much the loss per token of text rises from 32 tokens, as trained, to 256."""
    return apart(_rise, "softplus_power")


def _rise(form: str, seed: int) -> float:
    sizes = alike.SIZES | {"max_position_embeddings": 256}
    model = alike.build(form, seed=seed, gain=1.0, **sizes)
    alike.train(without_positions(model), seed)
    ids = torch.tensor(alike.corpora()[1].rows(np.random.default_rng(7), ROWS, 256))
    rows = alike.Rows(ids, ids.roll(-1, 1), torch.ones(ids.shape))
    with torch.no_grad():
        lost = alike.losses(model(ids).logits, rows)[:, :-1].mean(0)
    return float(lost[128:].mean() - lost[16:31].mean())


@claim("Sigmoid Self-Attention")
def sigmoid() -> Numbers:
    """Loss of sigmoid attention beside softmax, after three budgets at the best of three rates."""
    return in_range("sigmoid")


@claim("One Write-Head")
def multi_query() -> Numbers:
    """What one head of keys and values for all costs, and how many numbers it keeps per token."""
    both = (rules(alike.trained(form, 0))[0] for form in ("multi_query", SOFTMAX))
    own, plain = (rule.key.out_features + rule.value.out_features for rule in both)
    return own / plain, behind("multi_query")


@claim("Pit One Against Many")
def head_embeddings() -> Numbers:
    """Parameters of queries, keys and values, and what sharing them costs."""
    both = (rules(alike.trained(form, 0))[0] for form in ("head_embeddings", SOFTMAX))
    own, plain = (sum(p.numel() for p in rule.parameters()) for rule in both)
    return own / plain, behind("head_embeddings")


@claim("From Softmax to Sparsemax")
def sparsemax() -> Numbers:
    """The share of visible keys without weight, and the loss beside softmax."""
    return [_zeros("sparsemax", s)[0] for s in alike.SEEDS], behind("sparsemax")


@claim("Inverse distance weighting")
def inverse_distance() -> Numbers:
    """Keys by inverse distance beside keys by products: are they digits, and can one be added?"""
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    gaps, moved, told = [], [], []
    for seed in range(5):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        train, test = order[:1300], order[1300:]
        keys = {kind: _keys(kind, x[train], y[train], seed) for kind in ("inverse", "product")}
        nearest = {
            k: float(torch.cdist(v[0], x[train]).min(1).values.mean()) for k, v in keys.items()
        }
        gaps.append(nearest["inverse"] / nearest["product"])
        k, v = keys["inverse"]
        before = _read("inverse", x[test], k, v).argmax(-1)
        odd = int(torch.randint(len(test), (), generator=torch.Generator().manual_seed(seed)))
        other = (int(y[test[odd]]) + 1) % 10
        added = nn.functional.one_hot(torch.tensor([other]), 10) * v.abs().max()
        after = _read("inverse", x[test], torch.cat([k, x[test[odd]][None]]), torch.cat([v, added]))
        told.append(float(after.argmax(-1)[odd] == other))
        moved.append(float((after.argmax(-1) != before).float().sum() - 1) / (len(test) - 1))
    return gaps, told, moved


def _read(kind: str, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    if kind == "product":
        return (x @ keys.T).softmax(-1) @ values
    near = 1 / (torch.cdist(x, keys).square() + 1e-3)
    return near / near.sum(-1, keepdim=True) @ values


def _keys(kind: str, x: Tensor, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    keys = (0.5 + 0.2 * torch.randn(40, 64, generator=draw)).requires_grad_()
    values = torch.randn(40, 10, generator=draw).requires_grad_()
    optimizer = torch.optim.Adam([keys, values], lr=0.02)
    for _ in range(600):
        lost = nn.functional.cross_entropy(_read(kind, x, keys, values), y)
        step_down(optimizer, lost)
    return keys.detach(), values.detach()


@claim("Routing Transformers")
def routing() -> Numbers:
    """Loss beside a window of about as many keys, and the share of keys that a row sees."""
    own, window = over_seeds(_seen, "clusters", "window", seeds=alike.SEEDS)
    return behind("clusters", "window"), own / window


def _seen(form: str, seed: int) -> float:
    return float((maps(form, seed)[..., PAST] > 0).mean())


@claim("Principled Context Control")
def selective() -> Numbers:
    """Loss beside softmax, and how much the sharpness of rows differs."""
    return behind("query_temperature"), apart(_spread, "query_temperature")


def _spread(form: str, seed: int) -> float:
    """Return the standard deviation of the entropies of late rows, mean of the heads."""
    entropies = [stats.entropy(m[:, :, 16:], axis=-1) for m in maps(form, seed)]
    return float(np.mean([e.std((0, 2)) for e in entropies]))


@claim("Sparse Attention with Linear Units")
def rectified() -> Numbers:
    """Loss beside softmax, weights that are 0, rows without any weight, and how heads differ."""
    zeros, closed = zip(*(_zeros("relu_norm", s) for s in alike.SEEDS), strict=True)
    return behind("relu_norm"), zeros, closed, apart(between_heads, "relu_norm")


def _zeros(form: str, seed: int) -> tuple[float, float]:
    each = maps(form, seed)
    return float((each[..., PAST] == 0).mean()), float((each.sum(-1) == 0).mean())


def between_heads(form: str, seed: int) -> float:
    """Return the Jensen-Shannon divergence of a layer's heads, over rows where all attend."""
    found = []
    for m in maps(form, seed):
        total = m.sum(-1)
        rows = (total > 0).all(1)
        share = np.moveaxis(m / np.maximum(total, 1e-12)[..., None], 1, 2)[rows]
        both = stats.entropy(share.mean(1), axis=-1) - stats.entropy(share, axis=-1).mean(-1)
        found.append(float(both.mean()))
    return float(np.mean(found))


@claim("Adaptively Sparse")
def adaptively_sparse() -> Numbers:
    """Loss and divergence of heads beside softmax."""
    return behind("adaptive_entmax"), apart(between_heads, "adaptive_entmax")
