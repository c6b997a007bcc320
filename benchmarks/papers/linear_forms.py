"""Claims on attention in linear time: trained alike, distilled from softmax, or in its place."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from scipy.linalg import hankel, svd
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from papers import fitting
from papers.beside import KINDS, ROWS, SOFTMAX, behind, beside, loss, losses
from papers.finding import Numbers, claim
from training import alike, forms
from training.forms.rule import Projected, RuleShape
from training.forms.rules.normalisations import standard
from training.forms.rules.recurrences import LongConvolutionAttention


def operations(form: str, length: int, **sizes: Any) -> float:
    """Return the multiplications and additions of tensors per token that `mix` of a form makes.

    Counted by torch over the operations that run; a recurrence is counted as it is written.
    """
    rule = fitting.rules(forms.build(form, max_position_embeddings=length, **sizes))[0]
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
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            name = func.overloadpacket.__name__
            self.entries += out.numel() * (args[0].shape[-1] if name in ("mm", "bmm") else 1)
        return out


def growth(form: str, **sizes: Any) -> float:
    """Return the operations per token at 512 tokens over those at 128."""
    return operations(form, 512, **sizes) / operations(form, 128, **sizes)


def projected(model: Any, ids: Tensor, layer: int) -> Projected:
    """Return the queries, keys and values of a layer."""
    found: list[Projected] = []
    seen = model.blocks[layer].attention.projected.register_forward_hook(
        lambda module, given, out: found.append(out)
    )
    with seen, torch.no_grad():
        model(ids)
    return found[0]


beside("Efficient Attention: Attention with", ["two_softmaxes", "both_ways"], kinds=("text",))
beside("cosFormer", ["cosformer"], ["cosformer", "linear"])


@claim("FAST: Factorizable")
def fastmax() -> Numbers:
    """Attention by sums of features against that by rows, and the loss beside softmax."""
    scaled = _same_series(lambda q, k: (standard(q) * q.shape[-1] ** 0.5, standard(k)))
    return scaled, behind("fastmax")


def by_running_sums(f: Tensor, g: Tensor, v: Tensor) -> Tensor:
    """Return causal attention whose weights are products of features of queries and keys."""
    ones = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    state = (g[..., :, None] * ones[..., None, :]).cumsum(2)
    both = (f[..., None, :] @ state)[..., 0, :]
    return both[..., :-1] / both[..., -1:]


def _same_series(changed: Any = lambda q, k: (q, k)) -> float:
    """Compare 1 + s + s²/2 by running sums of features with the same by rows of weights."""
    draw, errors = torch.Generator(), []
    for width in (4, 8, 16):
        q, k, v = torch.randn(3, 1, 1, 300, width, generator=draw.manual_seed(0)).double()
        q, k = changed(q, k)
        s = q @ k.mT * width**-0.5
        direct = (1 + s + s.square() / 2).tril()
        direct = direct / direct.sum(-1, keepdim=True) @ v
        errors.append(float((by_running_sums(_series(q), _series(k), v) - direct).abs().max()))
    return max(errors)


@claim("TaylorShift")
def taylor() -> Numbers:
    """Attention by sums of features against that by rows, and the loss beside softmax."""
    return _same_series(), behind("taylor")


def _series(x: Tensor) -> Tensor:
    """Return features whose products are 1 + s + s²/2, for s the scaled product."""
    x = x * x.shape[-1] ** -0.25
    square = (x[..., :, None] * x[..., None, :]).flatten(-2) * 0.5**0.5
    return torch.cat([torch.ones_like(x[..., :1]), x, square], -1)


@claim("Rethinking Attention with Performers")
@torch.no_grad()
def performers() -> Numbers:
    """Maps of random features beside the softmax that they estimate, orthogonal or not."""
    more, turned, chance = [], [], []
    for seed in alike.SEEDS:
        model = alike.trained(SOFTMAX, seed)
        kept = projected(model, alike.asked_rows(SOFTMAX, "text", ROWS).given, 1)
        real = fitting.rules(model)[1].rows(kept, kept.every)
        errors = {
            (number, orthogonal): _feature_error(kept, real, number, orthogonal, seed)
            for number, orthogonal in ((16, True), (64, True), (64, False))
        }
        even = torch.ones(alike.LENGTH, alike.LENGTH).tril()
        even = even / even.sum(-1, keepdim=True)
        more.append(errors[64, True] / errors[16, True])
        turned.append(errors[64, True] / errors[64, False])
        chance.append(errors[64, True] / float((real - even).square().sum(-1).mean()))
    return more, turned, chance


def _feature_error(
    kept: Projected, real: Tensor, number: int, orthogonal: bool, seed: int
) -> float:
    q, k = kept.q, kept.k
    width, rng = q.shape[-1], torch.Generator().manual_seed(seed)
    rule = fitting.rules(forms.build("random_features", hidden_size=64))[0]
    found = []
    for _ in range(8):
        draws = torch.randn(q.shape[1], number, width, generator=rng)
        if orthogonal:
            lengths = draws.norm(dim=-1, keepdim=True)
            blocks = torch.randn(q.shape[1], number // width, width, width, generator=rng)
            draws = torch.linalg.qr(blocks).Q.flatten(1, 2) * lengths
        rule.draws, rule.drawn = nn.Parameter(draws, requires_grad=False), number
        given = Projected(q.new_zeros(len(q), q.shape[2], 1), q, k, q)
        found.append(float((rule.rows(given, given.every) - real).square().sum(-1).mean()))
    return sum(found) / len(found)


@claim("Delta Attention")
def delta_correction() -> Numbers:
    """Losses of the same weights with dense, sparse, and corrected sparse attention."""
    back = []
    for seed in alike.SEEDS:
        dense = alike.trained(SOFTMAX, seed)
        corrected, sparse = (_same_weights(dense, "delta_correction") for _ in range(2))
        for rule in fitting.rules(sparse):
            rule.rows = rule._sparse
        full, less, again = loss(dense), loss(sparse), loss(corrected)
        back.append((less - again) / (less - full))
    return back


def _same_weights(model: Any, form: str) -> Any:
    other = forms.build(form, **alike.SIZES)
    other.load_state_dict(model.state_dict())
    return other.eval()


@claim("Transformer-VQ")
@torch.no_grad()
def quantised_keys() -> Numbers:
    """Sums over codes against the dense map of quantised keys, and the loss beside softmax."""
    apart = []
    for seed in alike.SEEDS:
        model = alike.trained("quantised_keys", seed)
        [rule, _] = fitting.rules(model)
        given = projected(model, alike.asked_rows(SOFTMAX, "text", 16).given, 0)
        q, k, v = (x.double() for x in (given.q, given.k, given.v))
        codes = rule.codes.double()
        near = (k[..., None, :] - codes[:, None]).square().sum(-1).argmin(-1)
        hot = nn.functional.one_hot(near, codes.shape[1]).double()
        score = (q @ codes.mT * q.shape[-1] ** -0.5).exp()
        apart.append(float((by_running_sums(score, hot, v) - rule.mix(given)).abs().max()))
    return max(apart), behind("quantised_keys")


@claim("Flowformer")
def flowformer() -> Numbers:
    """Growth of the cost; loss beside softmax, and beside linear attention."""
    return growth("causal_flow"), behind("causal_flow"), behind("causal_flow", "linear")


@claim("Nyströmformer")
def nystromformer() -> Numbers:
    """Loss beside softmax over all positions; error of its map beside that of mean keys."""
    errors = [_landmark_errors(s) for s in alike.SEEDS]
    return behind("nystrom", "both_ways"), errors


@torch.no_grad()
def _landmark_errors(seed: int) -> float:
    """Return the error of a map through landmarks minus that through mean keys."""
    model, nystrom = (
        alike.trained("both_ways", seed),
        fitting.rules(alike.trained("nystrom", seed))[0],
    )
    nystrom.landmarks, found = 8, []
    ids = alike.asked_rows("both_ways", "text", ROWS).given
    for layer, rule in enumerate(fitting.rules(model)):
        state = projected(model, ids, layer)
        exact_map = rule.rows(state, state.every)
        through = nystrom.parts(state)["landmarks"](state.every)
        means = nn.functional.adaptive_avg_pool1d(state.k.flatten(0, 1).mT, 8).mT
        few = state.q @ means.unflatten(0, state.k.shape[:2]).mT * state.q.shape[-1] ** -0.5
        size = alike.LENGTH // 8
        spread = few.softmax(-1).repeat_interleave(size, -1) / size
        norm = exact_map.norm()
        found.append(float(((through - exact_map).norm() - (spread - exact_map).norm()) / norm))
    return float(np.mean(found))


@claim("Linear Log-Normal Attention")
def log_normal() -> Numbers:
    """Loss on recall of pairs, copies and text against two other linear forms and softmax."""
    for kind in ("recall", "copies", "text"):
        own, linear, random, softmax = (
            losses(form, [kind], 32)
            for form in ("log_normal", "linear", "random_features", SOFTMAX)
        )
        yield from (linear - own, random - own, own - softmax)


def from_softmax(seed: int, steps: int) -> nn.Module:
    """Distil a softmax model into a delta rule: outputs of attention first, then the logits."""
    teacher = alike.trained(SOFTMAX, seed)
    student = fitting.started(["delta_rule"] * 2, teacher, seed, **alike.SIZES)
    seen: list[tuple[Tensor, Tensor]] = []
    for attention in fitting.attentions(teacher):
        attention.register_forward_hook(lambda m, a, out: seen.append((a[0], out)))

    def apart(rng: np.random.Generator) -> Tensor:
        seen.clear()
        with torch.no_grad():
            teacher(alike.mixture(rng).given)
        pairs = zip(fitting.attentions(student), seen, strict=True)
        return sum(((m(x) - out).square().mean() for m, (x, out) in pairs), torch.zeros(()))

    def unlike(rng: np.random.Generator) -> Tensor:
        return fitting.divergence(student, teacher, alike.mixture(rng).given)

    fitting.fit(student, apart, steps=steps // 2, seed=seed)
    fitting.fit(student, unlike, steps=steps - steps // 2, seed=seed + 100)
    return student


@claim("RADLADS")
def radlads() -> Numbers:
    """Align the outputs of attention, then the logits; compare with the teacher and with none."""
    steps, own, fresh = alike.STEPS // 4, [], []
    for seed in alike.SEEDS:
        scratch = fitting.host(["delta_rule"] * 2, seed, **alike.SIZES)
        fitting.fit(scratch, lambda rng, m=scratch: alike.step_loss(m, rng), steps=steps, seed=seed)
        own.append(loss(from_softmax(seed, steps)))
        fresh.append(loss(scratch))
    return np.subtract(own, fresh), own - losses(SOFTMAX)


class Implicit(LongConvolutionAttention):
    """A long convolution whose filter is a small network of sines of the position, fading."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.length = shape.length
        del self._parameters["filter"]
        self.first, self.last = nn.Linear(9, 16), nn.Linear(16, shape.n_heads)
        self.held: Tensor | None = None

    @property
    def filter(self) -> Tensor:
        """Return the filter of each head, before it fades."""
        if self.held is not None:
            return self.held
        at = torch.arange(self.length) / self.length
        angles = 2 * math.pi * at[:, None] * torch.arange(1, 5)
        features = torch.cat([at[:, None], angles.sin(), angles.cos()], -1)
        return self.last(torch.sin(4 * self.first(features))).T


def realised(taps: np.ndarray, order: int) -> np.ndarray:
    """Return the filter of the linear recurrence of a small state nearest by its Hankel matrix."""
    h = taps[1:]
    half = len(h) // 2
    matrix = hankel(h[:half], h[half - 1 : 2 * half - 1])
    shifted = hankel(h[1 : half + 1], h[half : 2 * half])
    u, s, v = svd(matrix)
    u, s, v = u[:, :order], np.sqrt(s[:order]), v[:order]
    a = (u.T / s[:, None]) @ shifted @ (v.T / s)
    state, found = s * v[:, 0], [taps[0]]
    for _ in h:
        found.append(float((u[0] * s) @ state))
        state = a @ state
    return np.array(found)


@claim("Laughing Hyena")
def laughing_hyena() -> Numbers:
    """Realise each head's filter by its Hankel matrix; compare the loss with that of the filter."""
    rise, cut = [], []
    held_out = fitting.text(np.random.default_rng(99), 64, 64, held_out=True)
    for seed in range(5):
        model = fitting.host([Implicit] * 2, seed, **alike.SIZES)  # for 64 positions
        fitting.fit_text(model, seed, steps=300, length=64)
        with torch.no_grad():
            fading = 0.9 ** torch.arange(64.0)
            filters = [(r.filter * fading).double().numpy() for r in fitting.rules(model)]
            found = {"own": fitting.held_out_loss(model, held_out)}
            for name, of in (
                ("state", lambda h: realised(h, 8)),
                ("taps", lambda h: h * (np.arange(64) < 8)),
            ):
                for rule, each in zip(fitting.rules(model), filters, strict=True):
                    rule.held = torch.tensor(np.stack([of(h) for h in each])).float() / fading
                found[name] = fitting.held_out_loss(model, held_out)
        rise.append(found["state"] - found["own"])
        cut.append(found["state"] - found["taps"])
    return rise, cut


@claim("Latent Attention for Linear Time")
def latent_attention() -> Numbers:
    """Compare the losses on each kind of rows."""
    return tuple(behind("latent_states", kinds=[kind]) for kind in KINDS)


def by_transform(rule: Any, given: Projected) -> Tensor:
    """Return the output of kernelised attention with distances by fast Fourier transforms."""
    length = given.x.shape[1]
    q, k = rule.feature(given.q), rule.feature(given.k)
    gaps = torch.arange(length).clamp_max(rule.bias.shape[1] - 1)
    with_one = torch.cat([given.v, torch.ones_like(given.v[..., :1])], -1)
    states = (k[..., :, None] * with_one[..., None, :]).flatten(3)
    kernel = torch.fft.rfft(rule.bias[:, gaps].exp(), 2 * length)[..., None]
    mixed = torch.fft.irfft(kernel * torch.fft.rfft(states, 2 * length, dim=2), dim=2)
    mixed = mixed[:, :, :length].unflatten(-1, (q.shape[-1], -1))
    found = (q[..., None, :] @ mixed)[..., 0, :]
    return found[..., :-1] / found[..., -1:]


@claim("Stable, Fast and Accurate")
def kernel_with_distances() -> Numbers:
    """Compare losses; time the output by Fourier transforms beside that by the map."""
    [rule] = fitting.rules(
        fitting.host(["kernel_relative"], 0, max_position_embeddings=8, **fitting.SMALL)
    )
    with torch.no_grad():
        given, spent = rule.prepare(torch.randn(1, 2048, 32)), {True: [], False: []}
        wrong = float((by_transform(rule, given) - rule.mix(given)).abs().max())
        for fast in (True, False) * 5:
            start = time.process_time()
            by_transform(rule, given) if fast else rule.mix(given)
            spent[fast].append(time.process_time() - start)
    ratio = float(np.median(np.log(spent[True])) - np.median(np.log(spent[False])))
    losses_apart = behind("kernel_relative", "random_features"), behind("kernel_relative")
    return *losses_apart, wrong, math.exp(ratio)
