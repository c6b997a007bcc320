"""Claims of theorems: memory, rank, width, random features and programs of attention layers."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from theorems import sparse_average
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from interp.core.random_state import drawn_with
from papers.finding import Numbers, Share, claim, over_seeds
from papers.fitting import step_down
from training.forms.computer import Line, Machine, one_instruction

SEEDS = (0, 1, 2)


def _memory(heads: int, tokens: int, examples: int, seed: int) -> tuple[float, float]:
    """Train a layer on random labels of queries over shared tokens.

    Returns the share of the labels' variance that it memorises, and by how much training raised the
    largest weight of a row.
    """
    d_model, d_head = 16, 8
    draw = torch.Generator().manual_seed(seed)
    context = torch.randn(tokens, d_model, generator=draw)
    queries = torch.randn(examples, d_model, generator=draw)
    labels = torch.randn(examples, generator=draw)
    q, k = (torch.randn(heads, d_model, d_head, generator=draw) / 4 for _ in range(2))
    read, bias = torch.zeros(heads, d_model), torch.zeros(())
    parameters = [x.requires_grad_() for x in (q, k, read, bias)]

    def pattern() -> Float[Tensor, "head example token"]:
        return ((queries @ q) @ (context @ k).mT * d_head**-0.5).softmax(-1)

    before = float(pattern().detach().amax(-1).mean())
    adam = torch.optim.Adam(parameters, lr=0.01)
    loss = torch.tensor(0.0)
    for step in range(2000):
        loss = ((pattern() @ (read @ context.T)[:, :, None]).sum(0)[:, 0] + bias - labels).square()
        step_down(adam, loss.mean(), 0.02 * (1 - step / 2000))
    left = float(loss.detach().mean() / labels.var(correction=0))
    return 1 - left, float(pattern().detach().amax(-1).mean()) - before


@claim("Memorisation capacity")
def memorisation() -> Numbers:
    """Train on random labels: as many as the theorem promises, then far more than fit (2,000).

    Of random labels, a fixed set of features memorises the variance of as many as its rank, so the
    share of variance times the number of labels counts what is memorised.
    """
    promised = [1 - _memory(4, 8, 4 * 7 + 1, s)[0] for s in SEEDS]
    all_ = {(h, n): [_memory(h, n, 2000, s) for s in SEEDS] for h, n in ((1, 8), (4, 8), (4, 4))}
    many = np.array([x for x, _ in all_[4, 8]])
    heads = many / [x for x, _ in all_[1, 8]]
    tokens = many / [x for x, _ in all_[4, 4]]
    return promised, heads, tokens, [x for _, x in all_[4, 8]]


def _nearest(width: int, rank: int, heads: int, seed: int) -> float:
    """Train heads to take the nearer of two points; error over that of their mean."""
    draw = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(heads, width, rank, generator=draw) * width**-0.5 for _ in range(2))
    v = torch.randn(heads, width, width, generator=draw) / heads / width**0.5
    parameters = [x.requires_grad_() for x in (q, k, v)]
    adam = torch.optim.Adam(parameters)

    def errors(number: int) -> tuple[Tensor, Tensor]:
        x = F.normalize(torch.randn(number, 3, width, generator=draw), dim=-1)
        query, points = x[:, 0], x[:, 1:]
        near = (points @ query[:, :, None])[..., 0].argmax(1)
        target = points[torch.arange(number), near]
        scores = width * (
            (query @ q)[:, :, None] * (points.flatten(0, 1) @ k).unflatten(1, (number, 2))
        ).sum(-1)
        made = (torch.einsum("hnp,npd->hnd", scores.softmax(-1), points) @ v).sum(0)
        plain = (points.mean(1) - target).square().sum(1)
        return (made - target).square().sum(1).mean(), plain.mean()

    steps = 1000
    for step in range(steps):
        step_down(adam, errors(256)[0], 0.01 * (1 - step / steps))
    with torch.no_grad():
        error, plain = errors(20000)
    return float(error / plain)


@claim("On the Benefits of Rank")
def rank() -> Numbers:
    """Find the nearer of two points: a head of full rank, or many heads of a quarter of it."""
    low = {}
    for width in (8, 16, 32):
        low[width], full = over_seeds(
            lambda given, seed: _nearest(*given, seed),
            (width, width // 4, 16),
            (width, width, 1),
            seeds=SEEDS,
        )
        if width == 16:
            many = np.array([_nearest(width, 4, 64, s) for s in SEEDS]) - full
        yield low[width] - full
    yield from (many, low[32] - low[8])


@cache
def _width_needed(tokens: int, seed: int) -> int:
    width = 3
    while sparse_average(width, 3, tokens, 60, seed) < 0.9:
        width = max(width + 1, round(width * 1.15))
    return width


def _detects_pairs(tokens: int, values: int, seed: int) -> tuple[int, int]:
    """Count right answers of a head of width 3: is there a token that makes the sum 0?

    The score is the cosine of the sum as an angle; a blank key stands between it and the next one.
    """
    rng = np.random.default_rng(seed)
    x = rng.integers(values, size=(200, tokens))
    angle = 2 * np.pi * x / values
    query = np.stack([np.cos(angle), -np.sin(angle), np.ones_like(angle)], -1)
    blank = (1 + np.cos(2 * np.pi / values)) / 2
    key = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], -1)
    key = np.concatenate([key, np.broadcast_to([0, 0, blank], (200, 1, 3))], 1)
    scores = 60 / (1 - blank) * query @ key.swapaxes(1, 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    found = weights[..., -1] / weights.sum(-1) < 0.5
    wanted = ((x[:, :, None] + x[:, None]) % values == 0).any(-1)
    return int((found == wanted).sum()), wanted.size


class _Detector(nn.Module):
    """A layer of four heads and an MLP that answers at every position."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(values, 64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 1))

    def forward(self, x: Tensor) -> Tensor:
        e = self.embed(x)
        z = self.attention(e, e, e, need_weights=False)[0]
        return self.mlp(torch.cat([e, z], -1))[..., 0]


def _detection(order: int, seed: int, values: int = 151, tokens: int = 16) -> float:
    """Train a layer to say at each position whether it is one of `order` tokens with sum 0."""
    rng = np.random.default_rng(seed)
    x_i, x_j = (np.arange(tokens)[s] for s in ((slice(None), None), (None, slice(None))))

    def draw(number: int) -> tuple[Tensor, Tensor]:
        x = rng.integers(values, size=(number, tokens))
        if order == 2:  # half of the tokens get a partner; triples make half by chance
            x[:, 8:12] = -x[:, :4] % values
            x = rng.permuted(x, axis=1)
            sums = (x[:, :, None] + x[:, None]) % values
            right = ((sums == 0) & (x_i != x_j)).any(-1)
        else:
            sums = (x[:, :, None, None] + x[:, None, :, None] + x[:, None, None]) % values
            i, j, k = np.ogrid[:tokens, :tokens, :tokens]
            right = ((sums == 0) & (i != j) & (j != k) & (i != k)).any((-1, -2))
        return torch.tensor(x), torch.tensor(right)

    with drawn_with(seed):
        model = _Detector(values)
    adam = torch.optim.Adam(model.parameters())
    steps = 1200
    for step in range(steps):
        x, right = draw(64)
        loss = F.binary_cross_entropy_with_logits(model(x), right.float())
        step_down(adam, loss, 4e-3 * min(1.0, step / 50) * (1 - step / steps))
    x, right = draw(1000)
    with torch.no_grad():
        said = model(x) > 0
    each = [(said == right)[right == kind].float().mean() for kind in (True, False)]
    return float(sum(each) / 2)


@claim("Representational Strengths")
def strengths() -> Numbers:
    """Widths that average 3 of 16 to 1,024 tokens; pairs by hand; pairs and triples trained."""
    growth = [_width_needed(1024, s) / _width_needed(16, s) for s in SEEDS]
    narrow = round(200 * sparse_average(2, 3, 64, 200, 0))
    right, number = _detects_pairs(64, 128, 0)
    gap = [_detection(2, s) - _detection(3, s) for s in SEEDS]
    return growth, Share(narrow, 200), right / number, gap


def _regression(kind: str, target: str, samples: int, seed: int) -> float:
    """Fit a target on random features of a kind; error over variance on held-out examples."""
    d, tokens, heads, held = 8, 8, 400, 2000
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((samples + held, tokens + 1, d))
    x *= d**0.5 / np.linalg.norm(x, axis=-1, keepdims=True)
    beta = rng.standard_normal(d)
    beta /= np.linalg.norm(beta)
    query, keys = x[:, 0], x[:, 1:]
    end = np.ones((len(x), tokens + 1, 1))  # heads and neurons have a bias, as published
    near = (keys @ query[:, :, None])[..., 0] / d**0.5
    y = ((keys @ beta) ** 2 if target == "set" else near**2 * (keys @ beta)).mean(1)
    if kind == "mlp":
        flat = np.concatenate([x.reshape(len(x), -1), end[:, 0]], 1)
        z = np.maximum(flat @ rng.standard_normal((flat.shape[1], heads * (d + 1))), 0)
    else:
        query, keys = (
            np.concatenate([t, e], -1) for t, e in ((query, end[:, 0]), (keys, end[:, 1:]))
        )
        maps = rng.standard_normal((heads, d + 1, d + 1)) / d
        maps += np.eye(d + 1) * d**-0.5 if kind == "biased heads" else 0
        weights = np.maximum(np.einsum("nd,mde,nte->nmt", query, maps, keys), 0) / tokens
        z = (weights @ keys).reshape(len(x), -1)
    z = np.concatenate([z, np.ones((len(z), 1))], 1)
    train, test = z[:samples], z[samples:]
    inner, across = train @ train.T, test @ train.T
    scale, best = np.trace(inner) / samples, np.inf
    for ridge in 10.0 ** np.arange(-6, 2):  # the best of each kind
        fit = np.linalg.solve(inner + ridge * scale * np.eye(samples), y[:samples])
        best = min(best, ((across @ fit - y[samples:]) ** 2).mean() / y[samples:].var())
    return float(best)


@claim("What can a Single Attention Layer Learn")
def random_features() -> Numbers:
    """Ridge regression on outputs of random heads, of random neurons, and of biased heads."""
    heads, neurons, plain, biased = over_seeds(
        lambda given, seed: _regression(*given, seed),
        ("heads", "set", 400),
        ("mlp", "set", 1600),
        ("heads", "near", 1600),
        ("biased heads", "near", 1600),
        seeds=range(5),
    )
    return neurons - heads, plain - biased


def _line(rng: np.random.Generator, machine: Machine) -> Line:
    a, b = rng.integers(machine.cells, size=2)
    return int(a), int(b), int(rng.integers(machine.lines))


@claim("Looped Transformers as Programmable")
def looped_computer() -> Numbers:
    """Run random SUBLEQ programs for 20 loops, and by an interpreter; without the writing heads."""
    machine = one_instruction(20)
    model, rng, half = interp.load(machine.model), np.random.default_rng(0), machine.values // 2
    given = []
    for _ in range(200):
        program = [_line(rng, machine) for _ in range(machine.lines)]
        given.append((program, rng.integers(-half, half, machine.cells).tolist()))
    states = [machine.state(*one) for one in given]
    writing = interp.zero([(2 + 3 * i, head) for i in range(20) for head in (0, 1)])
    ends = [machine.run(*one, 20) for one in given]
    for edits in ([], [writing]):
        with torch.no_grad():
            out = model.run(states, edits=edits).argmax(-1).tolist()
        yield Share(sum(machine.read(o) == end for o, end in zip(out, ends, strict=True)), 200)
