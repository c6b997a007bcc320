"""Claims about forms of linear cost beside softmax, distilled from it or trained alike."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from scipy.linalg import hankel, svd
from torch import Tensor, nn

from benchmarks.paper_findings import Finding
from papers.beside import KINDS, SAMPLES, SOFTMAX, loss, losses
from papers.finding import below, claim, exact
from papers.fitting import SMALL, attentions, fit, fit_text, host, next_token, text
from training import alike
from training.forms.rule import Projected, RuleShape
from training.forms.rules.recurrences import LongConvolutionAttention


def mixture(rng: np.random.Generator) -> alike.Rows:
    """Return one step's training rows of the models that were trained alike."""
    parts = [alike.rows(k, n, rng, causal=True, held_out=False) for k, n in alike.ROWS.items()]
    return alike.Rows(*(torch.cat(part) for part in zip(*parts, strict=True)))


def from_softmax(seed: int, steps: int) -> nn.Module:
    """Distil a softmax model into a delta rule: outputs of attention first, then the logits."""
    teacher = alike.trained(SOFTMAX, seed)
    student = host(["delta_rule"] * 2, seed, **alike.SIZES)
    student.load_state_dict(teacher.state_dict(), strict=False)
    seen: list[tuple[Tensor, Tensor]] = []
    for attention in attentions(teacher):
        attention.register_forward_hook(lambda m, a, out: seen.append((a[0], out)))

    def apart(rng: np.random.Generator) -> Tensor:
        seen.clear()
        with torch.no_grad():
            teacher(mixture(rng).given)
        pairs = zip(attentions(student), seen, strict=True)
        return sum(((m(x) - out).square().mean() for m, (x, out) in pairs), torch.zeros(()))

    def unlike(rng: np.random.Generator) -> Tensor:
        ids = mixture(rng).given
        with torch.no_grad():
            wanted = teacher(ids).logits.log_softmax(-1)
        own = student(ids).logits.log_softmax(-1)
        return nn.functional.kl_div(own, wanted, log_target=True, reduction="none").sum(-1).mean()

    fit(student, apart, steps=steps // 2, seed=seed)
    fit(student, unlike, steps=steps - steps // 2, seed=seed + 100)
    return student


@claim(
    "RADLADS",
    "softmax models trained alike, distilled into the rule of variant:delta_rule in a quarter of "
    "their steps; the same rule trained from nothing for as long",
)
def radlads() -> list[Finding]:
    """Align the outputs of attention, then the logits; compare with the teacher and with none."""
    steps, own, fresh = alike.STEPS // 4, [], []
    for seed in alike.SEEDS:
        scratch = host(["delta_rule"] * 2, seed, **alike.SIZES)

        def lost(rng: np.random.Generator, model: Any = scratch) -> Tensor:
            asked = mixture(rng)
            return alike.mean_loss(model(asked.given).logits, asked)

        fit(scratch, lost, steps=steps, seed=seed)
        own.append(loss(from_softmax(seed, steps)))
        fresh.append(loss(scratch))
    return [
        below(
            "loss of the distilled model minus one trained from nothing",
            np.subtract(own, fresh),
            SAMPLES,
            unit="nats per token",
        ),
        below(
            "loss of the distilled model minus its softmax teacher",
            own - losses(SOFTMAX),
            SAMPLES,
            0.1,
            "nats per token",
        ),
    ]


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


@claim(
    "Laughing Hyena",
    "two layers with the rule of variant:long_convolution and filters of a small network, trained "
    "on text of 64 tokens; filters replaced by recurrences of state 8 or by their first 8 taps",
)
def laughing_hyena() -> list[Finding]:
    """Realise each head's filter by its Hankel matrix; compare the loss with that of the filter."""
    rise, cut = [], []
    held_out = text(np.random.default_rng(99), 64, 64, held_out=True)
    for seed in range(5):
        sizes = {**alike.SIZES, "max_position_embeddings": 64}
        model = host([Implicit] * 2, seed, **sizes)
        fit_text(model, seed, steps=300, length=64)
        rules: list[Any] = [a.rule for a in attentions(model)]
        with torch.no_grad():
            fading = 0.9 ** torch.arange(64.0)
            filters = [(r.filter * fading).double().numpy() for r in rules]
            found = {"own": float(next_token(model(held_out).logits, held_out))}
            for name, of in (
                ("state", lambda h: realised(h, 8)),
                ("taps", lambda h: h * (np.arange(64) < 8)),
            ):
                for rule, each in zip(rules, filters, strict=True):
                    rule.held = torch.tensor(np.stack([of(h) for h in each])).float() / fading
                found[name] = float(next_token(model(held_out).logits, held_out))
        rise.append(found["state"] - found["own"])
        cut.append(found["state"] - found["taps"])
    n = "5 seeds, 64 held-out rows of text each"
    return [
        below("loss with a state of 8 minus with the whole filter", rise, n, 0.01),
        below("loss with a state of 8 minus with the first 8 taps", cut, n),
    ]


@claim(
    "Latent Attention for Linear Time",
    "variant:latent_states and variant:plain_softmax trained alike for 600 steps on text, copies "
    "and recall",
)
def latent_attention() -> list[Finding]:
    """Compare the losses on each kind of rows."""
    return [
        below(
            f"loss on {kind} minus softmax",
            losses("latent_states", [kind]) - losses(SOFTMAX, [kind]),
            SAMPLES,
            0.1,
            "nats per token",
        )
        for kind in KINDS
    ]


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


@claim(
    "Stable, Fast and Accurate",
    "variant:kernel_relative, variant:random_features and variant:plain_softmax trained alike for "
    "600 steps on text, copies and recall",
)
def kernel_with_distances() -> list[Finding]:
    """Compare losses; time the output by Fourier transforms beside that by the map."""
    own, plain, softmax = (losses(form) for form in ("kernel_relative", "random_features", SOFTMAX))
    rule: Any = host(["kernel_relative"], 0, max_position_embeddings=8, **SMALL).blocks[0]
    rule = rule.attention.rule
    with torch.no_grad():
        given, spent = rule.prepare(torch.randn(1, 2048, 32)), {True: [], False: []}
        wrong = float((by_transform(rule, given) - rule.mix(given)).abs().max())
        for fast in (True, False) * 5:
            start = time.process_time()
            by_transform(rule, given) if fast else rule.mix(given)
            spent[fast].append(time.process_time() - start)
    ratio = float(np.median(np.log(spent[True])) - np.median(np.log(spent[False])))
    return [
        below(
            "loss with norms and distances minus without",
            own - plain,
            SAMPLES,
            unit="nats per token",
        ),
        below(
            "loss with norms and distances minus softmax",
            own - softmax,
            SAMPLES,
            0.1,
            "nats per token",
        ),
        exact(
            "largest difference of the output by Fourier transforms to that by the map",
            wrong,
            "output",
            "below",
            1e-3,
            "2048 tokens",
        ),
        exact(
            "time of the output by Fourier transforms over that by the map",
            math.exp(ratio),
            "ratio",
            "below",
            1.0,
            "2048 tokens, medians of 5",
        ),
    ]
