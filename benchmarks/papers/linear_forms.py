"""Claims on attention in linear time, and on sparse attention that stands for dense attention."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.paper_findings import Finding
from papers.beside import ALIKE, ROWS, SAMPLES, SOFTMAX, better, loss, no_worse
from papers.finding import above, below, claim, exact
from training import alike, forms
from training.forms.rule import Projected
from training.forms.rules.normalisations import standard


def rule_of(model: Any, layer: int = 0) -> Any:
    """Return the rule of a layer of a model of variants."""
    return model.blocks[layer].attention.rule


def operations(form: str, length: int, **sizes: Any) -> float:
    """Return the multiplications and additions of tensors per token that `mix` of a form makes.

    Counted by torch over the operations that run; a recurrence is counted as it is written.
    """
    rule = rule_of(forms.build(form, max_position_embeddings=length, **sizes))
    x = torch.randn(1, length, rule.shape.d_model, generator=torch.Generator().manual_seed(0))
    counted = Counted()
    with torch.no_grad(), counted:
        rule.mix(rule.prepare(x))
    return counted.entries / length


class Counted(TorchDispatchMode):
    """Counts the entries of every tensor that an operation writes, and the terms of products."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and count it."""
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            name = func.overloadpacket.__name__
            self.entries += out.numel() * (args[0].shape[-1] if name in ("mm", "bmm") else 1)
        return out


def growth(form: str, **sizes: Any) -> float:
    """Return the operations per token at 512 tokens over those at 128."""
    return operations(form, 512, **sizes) / operations(form, 128, **sizes)


def projected(model: Any, ids: torch.Tensor, layer: int) -> Projected:
    """Return the queries, keys and values of a layer."""
    found: list[Projected] = []
    seen = model.blocks[layer].attention.projected.register_forward_hook(
        lambda module, given, out: found.append(out)
    )
    with seen, torch.no_grad():
        model(ids)
    return found[0]


LINEAR = "operations per token at 512 tokens over those at 128 (1 is linear, 4 quadratic)"
COUNTED = "operations counted once, random weights"


@claim("FAST: Factorizable", f"variant fastmax beside softmax, {ALIKE}")
def fastmax() -> list[Finding]:
    """Attention by sums of features against that by rows, and the loss beside softmax."""
    return [
        _same_series(lambda q, k: (standard(q) * q.shape[-1] ** 0.5, standard(k))),
        no_worse("fastmax"),
    ]


def by_running_sums(f: torch.Tensor, g: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return causal attention whose weights are products of features of queries and keys."""
    ones = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    state = (g[..., :, None] * ones[..., None, :]).cumsum(2)
    both = (f[..., None, :] @ state)[..., 0, :]
    return both[..., :-1] / both[..., -1:]


def _same_series(changed: Any = lambda q, k: (q, k)) -> Finding:
    """Compare 1 + s + s²/2 by running sums of features with the same by rows of weights."""
    draw, errors = torch.Generator(), []
    for width in (4, 8, 16):
        q, k, v = torch.randn(3, 1, 1, 300, width, generator=draw.manual_seed(0)).double()
        q, k = changed(q, k)
        s = q @ k.mT * width**-0.5
        direct = (1 + s + s.square() / 2).tril()
        direct = direct / direct.sum(-1, keepdim=True) @ v
        errors.append(float((by_running_sums(_series(q), _series(k), v) - direct).abs().max()))
    return exact(
        "largest difference of the linear form to the quadratic one",
        max(errors),
        "output",
        "below",
        1e-9,
        "300 tokens of random vectors, widths 4, 8 and 16",
    )


@claim("Efficient Attention: Attention with", f"variant two_softmaxes beside both_ways, {ALIKE}")
def two_softmaxes() -> Finding:
    """Loss on hidden tokens of text beside softmax over all positions."""
    return no_worse("two_softmaxes", "both_ways", kinds=("text",))


@claim("cosFormer", f"variant cosformer beside softmax and linear, {ALIKE}")
def cosformer() -> list[Finding]:
    """Loss minus that of softmax, and of linear attention, which has no weights by distance."""
    return [no_worse("cosformer"), better("cosformer", "linear")]


@claim("TaylorShift", f"variant taylor beside softmax, {ALIKE}")
def taylor() -> list[Finding]:
    """Attention by sums of features against that by rows, and the loss beside softmax."""
    return [_same_series(), no_worse("taylor")]


def _series(x: torch.Tensor) -> torch.Tensor:
    """Return features whose products are 1 + s + s²/2, for s the scaled product."""
    x = x * x.shape[-1] ** -0.25
    square = (x[..., :, None] * x[..., None, :]).flatten(-2) * 0.5**0.5
    return torch.cat([torch.ones_like(x[..., :1]), x, square], -1)


@claim("Rethinking Attention with Performers", f"queries and keys of softmax, {ALIKE}")
@torch.no_grad()
def performers() -> list[Finding]:
    """Maps of random features beside the softmax that they estimate, orthogonal or not."""
    more, turned, chance = [], [], []
    for seed in alike.SEEDS:
        model = alike.trained(SOFTMAX, seed)
        kept = projected(model, alike.asked_rows(SOFTMAX, "text", ROWS).given, 1)
        real = rule_of(model, 1).rows(kept, kept.every)
        errors = {
            (number, orthogonal): _feature_error(kept, real, number, orthogonal, seed)
            for number, orthogonal in ((16, True), (64, True), (64, False))
        }
        even = torch.ones(alike.LENGTH, alike.LENGTH).tril()
        even = even / even.sum(-1, keepdim=True)
        more.append(errors[64, True] / errors[16, True])
        turned.append(errors[64, True] / errors[64, False])
        chance.append(errors[64, True] / float((real - even).square().sum(-1).mean()))
    said = "squared error of the map, "
    return [
        below(said + "64 features over 16", more, SAMPLES, 0.5, "ratio"),
        below(said + "orthogonal features over independent", turned, SAMPLES, 1, "ratio"),
        below(said + "64 features over even attention", chance, SAMPLES, 0.5, "ratio"),
    ]


def _feature_error(
    kept: Projected, real: torch.Tensor, number: int, orthogonal: bool, seed: int
) -> float:
    q, k = kept.q, kept.k
    width, rng = q.shape[-1], torch.Generator().manual_seed(seed)
    rule = rule_of(forms.build("random_features", hidden_size=64))
    found = []
    for _ in range(8):
        draws = torch.randn(q.shape[1], number, width, generator=rng)
        if orthogonal:
            lengths = draws.norm(dim=-1, keepdim=True)
            blocks = torch.randn(q.shape[1], number // width, width, width, generator=rng)
            draws = torch.linalg.qr(blocks).Q.flatten(1, 2) * lengths
        rule.draws, rule.drawn = torch.nn.Parameter(draws, requires_grad=False), number
        given = Projected(q.new_zeros(len(q), q.shape[2], 1), q, k, q)
        found.append(float((rule.rows(given, given.every) - real).square().sum(-1).mean()))
    return sum(found) / len(found)


@claim("Delta Attention", f"weights of softmax {ALIKE}, run as variant delta_correction")
def delta_correction() -> list[Finding]:
    """Losses of the same weights with dense, sparse, and corrected sparse attention."""
    back = []
    for seed in alike.SEEDS:
        dense = alike.trained(SOFTMAX, seed)
        corrected = _same_weights(dense, "delta_correction")
        sparse = _same_weights(dense, "delta_correction")
        for block in sparse.blocks:
            rule: Any = block.attention.rule  # type: ignore[union-attr]
            rule.rows = rule._sparse
        full, less, again = loss(dense), loss(sparse), loss(corrected)
        back.append((less - again) / (less - full))
    what = "share of the loss by sparse attention that the correction takes back"
    return [above(what, back, SAMPLES, 0.5, "share")]


def _same_weights(model: Any, form: str) -> Any:
    other = forms.build(form, **alike.SIZES)
    other.load_state_dict(model.state_dict())
    return other.eval()


@claim("Transformer-VQ", f"variant quantised_keys beside softmax, {ALIKE}")
@torch.no_grad()
def quantised_keys() -> list[Finding]:
    """Sums over codes against the dense map of quantised keys, and the loss beside softmax."""
    apart = []
    for seed in alike.SEEDS:
        model = alike.trained("quantised_keys", seed)
        rule = rule_of(model)
        given = projected(model, alike.asked_rows(SOFTMAX, "text", 16).given, 0)
        q, k, v = (x.double() for x in (given.q, given.k, given.v))
        codes = rule.codes.double()
        near = (k[..., None, :] - codes[:, None]).square().sum(-1).argmin(-1)
        hot = torch.nn.functional.one_hot(near, codes.shape[1]).double()
        score = (q @ codes.mT * q.shape[-1] ** -0.5).exp()
        apart.append(float((by_running_sums(score, hot, v) - rule.mix(given)).abs().max()))
    return [
        exact(
            "largest difference of sums over codes to the dense output",
            max(apart),
            "output",
            "below",
            1e-4,
            "3 seeds, 16 rows",
        ),
        no_worse("quantised_keys"),
    ]
