"""Claims on changed softmax attention, trained beside softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import interp
from benchmarks.paper_findings import Finding
from papers.beside import ALIKE, ROWS, SAMPLES, SOFTMAX, apart, better, loss, losses, maps, no_worse
from papers.curves import IN_RANGE, no_worse_in_range
from papers.finding import above, below, claim, exact, over_seeds
from papers.fitting import step_down
from training import alike


def text(form: str) -> list[list[int]]:
    """Return held-out rows of text."""
    return alike.asked_rows(form, "text", ROWS).given.tolist()


@claim("Quantizable Transformers", f"variants clipped and gated_output beside softmax, {ALIKE}")
def quantizable() -> list[Finding]:
    """The largest activation of a model, and what the changes cost on all three kinds of rows."""
    found = []
    for form in ("clipped", "gated_output"):
        own, plain = over_seeds(_largest, form, SOFTMAX, seeds=alike.SEEDS)
        what = f"log of the largest activation of {form} over that of softmax"
        found += [below(what, np.log(own / plain), SAMPLES, unit="log ratio"), no_worse(form)]
    return found


def _largest(form: str, seed: int) -> float:
    found = interp.heads.outliers.layer_outliers(alike.loaded(form, seed), text(form))
    return found.model_wide("resid_post")["inf_norm"]


@claim("Multi-Overlapped-Head", f"variant overlapping_heads beside softmax, {ALIKE}; no images")
def overlapping() -> Finding:
    """Loss of overlapping heads minus that of heads apart."""
    return better("overlapping_heads")


@claim("Transformer-MGK", f"variant mixture_of_keys with two heads beside softmax of four, {ALIKE}")
def mixture_of_keys() -> Finding:
    """Half the heads with two keys per position each, beside all heads with one."""
    return no_worse("mixture_of_keys", num_attention_heads=2, head_dim=16)


@claim("Talking-heads attention", f"variant talking_heads beside softmax, {ALIKE}")
def talking_heads() -> Finding:
    """Loss with projections over heads before and after the softmax, minus without."""
    return better("talking_heads")


@claim("Neural Attention: A Novel", f"variant neural_scores beside softmax, {ALIKE}")
def neural_scores() -> Finding:
    """Loss with scores from a small network minus that with products."""
    return better("neural_scores")


@claim("Normalized Attention Without", "variants normalised_scores and softmax, 3 learning rates")
def normalised_scores() -> Finding:
    """The worst loss over rates of learning a quarter, once and four times the usual one."""
    what = "worst loss over three rates of learning: normalised scores minus softmax"
    return below(what, apart(_worst, "normalised_scores"), SAMPLES, unit="nats per token")


def _worst(form: str, seed: int) -> float:
    return max(_at_rate(form, seed, times) for times in (0.25, 1, 4))


def _at_rate(form: str, seed: int, times: float) -> float:
    usual = alike.RATE
    try:
        alike.RATE = usual * times
        return loss(alike.trained(form, seed))
    finally:
        alike.RATE = usual


@claim("More Expressive Attention", f"variant signed beside softmax, {ALIKE}")
def signed() -> list[Finding]:
    """Loss, and how alike the last layer's streams of different tokens are."""
    what = "mean cosine of the last streams of two tokens of a text: signed minus softmax"
    return [better("signed"), below(what, apart(_alike, "signed"), SAMPLES, unit="cosine")]


def _alike(form: str, seed: int) -> float:
    x = alike.loaded(form, seed).capture(text(form), ["resid_post"], layers=1)["resid_post", 1]
    x = torch.nn.functional.normalize(x, dim=-1)
    n = x.shape[1]
    return float(((x @ x.mT).sum((-1, -2)) - n).mean() / (n * (n - 1)))


@claim("Weighted Grouped Query", "variant weighted_groups with learned and with equal weights")
def weighted_groups() -> list[Finding]:
    """Learned weights of the heads of a group beside their plain mean, and beside softmax."""
    equal = []
    for seed in alike.SEEDS:
        model = alike.build("weighted_groups", seed=seed, gain=1.0, **alike.SIZES)
        for block in model.blocks:
            share: Any = block.attention.rule.share  # type: ignore[union-attr]
            share.data.fill_(0.5)
            share.requires_grad_(False)
        equal.append(loss(alike.train(model, seed)))
    what = "loss with learned weights minus equal ones"
    return [
        below(what, losses("weighted_groups") - equal, SAMPLES, unit="nats per token"),
        no_worse("weighted_groups"),
    ]


@claim("Softplus Attention", "softplus_power and softmax trained alike on 32 tokens, no positions")
def softplus_power() -> Finding:
    """How much the loss per token of text rises from 32 tokens, as trained, to 256."""
    what = "loss of tokens 128 to 256 minus that of 16 to 32: softplus minus softmax"
    rises = apart(_rise, "softplus_power")
    return below(what, rises, f"3 seeds, {ROWS} rows of 256 tokens", unit="nats per token")


def _rise(form: str, seed: int) -> float:
    sizes = alike.SIZES | {"max_position_embeddings": 256}
    model = alike.build(form, seed=seed, gain=1.0, **sizes)
    model.positions.weight.data.zero_()
    model.positions.weight.requires_grad_(False)
    alike.train(model, seed)
    ids = torch.tensor(alike.corpora()[1].rows(np.random.default_rng(7), ROWS, 256))
    rows = alike.Rows(ids, ids.roll(-1, 1), torch.ones(ids.shape))
    with torch.no_grad():
        lost = alike.losses(model(ids).logits, rows)[:, :-1].mean(0)
    return float(lost[128:].mean() - lost[16:31].mean())


@claim("Sigmoid Self-Attention", f"variant sigmoid beside softmax, {IN_RANGE}")
def sigmoid() -> list[Finding]:
    """Loss of sigmoid attention beside softmax, after three budgets at the best of three rates."""
    return no_worse_in_range("sigmoid")


@claim("One Write-Head", f"variant multi_query beside softmax, {ALIKE}")
def multi_query() -> list[Finding]:
    """What one head of keys and values for all costs, and how many numbers it keeps per token."""
    kept = {}
    for form in ("multi_query", SOFTMAX):
        rule: Any = alike.trained(form, 0).blocks[0].attention.rule  # type: ignore[union-attr]
        kept[form] = rule.key.out_features + rule.value.out_features
    ratio = kept["multi_query"] / kept[SOFTMAX]
    what = "numbers of keys and values per token and layer, over those of softmax"
    return [
        exact(what, ratio, "ratio", "below", 0.3, "widths of the projections, 4 heads"),
        no_worse("multi_query"),
    ]


@claim("Pit One Against Many", f"variant head_embeddings beside softmax, {ALIKE}")
def head_embeddings() -> list[Finding]:
    """Parameters of queries, keys and values, and what sharing them costs."""
    number = {
        form: sum(p.numel() for p in alike.trained(form, 0).blocks[0].attention.rule.parameters())  # type: ignore[union-attr]
        for form in ("head_embeddings", SOFTMAX)
    }
    ratio = number["head_embeddings"] / number[SOFTMAX]
    what = "parameters of queries, keys and values over those of softmax"
    return [
        exact(what, ratio, "ratio", "below", 0.5, "a layer of 4 heads"),
        no_worse("head_embeddings"),
    ]


@claim("RCMHA", f"variant convolved_projections beside relative_bias, {ALIKE}")
def convolved_projections() -> Finding:
    """Loss with convolved queries, keys and values minus that with relative positions alone."""
    return better("convolved_projections", "relative_bias")


@claim("From Softmax to Sparsemax", f"variant sparsemax beside softmax, {ALIKE}")
def sparsemax() -> list[Finding]:
    """The share of visible keys without weight, and the loss beside softmax."""
    past = np.tril(np.ones((alike.LENGTH, alike.LENGTH), bool))
    shares = [float((maps("sparsemax", s)[..., past] == 0).mean()) for s in alike.SEEDS]
    what = "share of the visible keys that get no weight"
    return [above(what, shares, SAMPLES, 0.5, "share"), no_worse("sparsemax")]


@claim("Inverse distance weighting", "one layer of 40 learned keys on scikit-learn's 8 x 8 digits")
def inverse_distance() -> list[Finding]:
    """Keys by inverse distance beside keys by products: are they digits, and can one be added?"""
    from sklearn.datasets import load_digits

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
        added = torch.nn.functional.one_hot(torch.tensor([other]), 10) * v.abs().max()
        after = _read("inverse", x[test], torch.cat([k, x[test[odd]][None]]), torch.cat([v, added]))
        told.append(float(after.argmax(-1)[odd] == other))
        moved.append(float((after.argmax(-1) != before).float().sum() - 1) / (len(test) - 1))
    n = "5 divisions of 1,797 digits"
    return [
        below("distance of a key to the nearest digit, inverse over product", gaps, n, 1, "ratio"),
        above("share of the exceptions that an added key teaches", told, n, 0.9, "share"),
        below("share of the other digits whose class it changes", moved, n, 0.02, "share"),
    ]


def _read(kind: str, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    if kind == "product":
        return (x @ keys.T).softmax(-1) @ values
    near = 1 / (torch.cdist(x, keys).square() + 1e-3)
    return near / near.sum(-1, keepdim=True) @ values


def _keys(
    kind: str, x: torch.Tensor, y: torch.Tensor, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    keys = (0.5 + 0.2 * torch.randn(40, 64, generator=draw)).requires_grad_()
    values = torch.randn(40, 10, generator=draw).requires_grad_()
    optimizer = torch.optim.Adam([keys, values], lr=0.02)
    for _ in range(600):
        lost = torch.nn.functional.cross_entropy(_read(kind, x, keys, values), y)
        step_down(optimizer, lost)
    return keys.detach(), values.detach()
