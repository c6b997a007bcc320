"""Search for the subspace that holds a variable: rotations, learned boundaries, and masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from interp.circuits.variables.places import FeatureSubspace, Subspace
from interp.core.random_state import drawn_with
from interp.model.hooks.inference import inference

if TYPE_CHECKING:
    from interp.circuits.variables.places import HeldPlace, InterchangeRuns
    from interp.dictionaries.dictionary import Dictionary

Method = Literal["rotation", "boundless", "mask", "heads", "features"]
RATE = 0.02  # learning rate of rotations
MASK_RATE = 0.1  # learning rate of masks and boundaries
PRICE = {
    "boundless": 0.05,
    "mask": 0.01,
    "heads": 0.02,
    "features": 0.05,
}  # nats for the exchange of everything
WARM, COLD = 2.0, 0.05  # temperatures of masks, first and last
WINDOW = 16  # steps over which losses are averaged
SOLVED = 0.02  # nats at which a fit ends
LEAST_GAIN = 0.995  # a fit ends when the loss of a window is above this share of the one before
VARIES = 0.999  # share of the variance on the data by which directions that vary are chosen


def search(
    runs: InterchangeRuns,
    place: HeldPlace,
    method: Method,
    k: int,
    *,
    steps: int,
    seed: int,
    others: Sequence[InterchangeRuns] = (),
    dictionary: Dictionary | None = None,
) -> Subspace:
    """Find the subspace whose exchange gives the answers of the interchanges."""
    widths = [piece.width for piece in place.pieces]
    with drawn_with(seed):
        if method == "rotation":
            mask = _Rotation(runs, place, k)
        elif dictionary is not None:
            mask = _FeatureMask(dictionary)
        else:
            mask = _Mask(widths, method)
        order = [i for _ in range(steps) for i in torch.randperm(len(runs.groups)).tolist()]
    rate = RATE if method == "rotation" else MASK_RATE
    slow = [p for name, p in mask.named_parameters() if "rotation" in name]
    fast = [p for name, p in mask.named_parameters() if "rotation" not in name]
    groups = [{"params": slow, "lr": RATE}, {"params": fast, "lr": rate}]
    optimiser = torch.optim.Adam([group for group in groups if group["params"]])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps, eta_min=RATE / 20)
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    losses: list[float] = []
    with inference(runs.graph.model.module), torch.enable_grad():
        for at in range(steps):
            group = runs.groups[order[at]]
            subspace, price = mask(at / max(1, steps - 1))
            logits = runs.logits(group, place, subspace)
            loss = nn.functional.cross_entropy(logits, group.answer) + price
            for other in others:
                still = other.groups[at % len(other.groups)]
                logits = other.logits(still, place, subspace)
                loss = loss + nn.functional.cross_entropy(logits, still.answer) / len(others)
            # not backward(): the gradients of the model's own parameters stay as they are
            for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                p.grad = gradient
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
            if _is_done(losses):
                break
    with torch.no_grad():
        return mask.hard()


def _is_done(losses: list[float]) -> bool:
    """Return True if a fit has reached its aim, or no longer goes on."""
    last, before = losses[-WINDOW:], losses[-2 * WINDOW : -WINDOW]
    if len(before) < WINDOW:
        return False
    now, then = sum(last) / WINDOW, sum(before) / WINDOW
    return now < SOLVED or now > LEAST_GAIN * then


def _columns(rotations: nn.ModuleList) -> tuple[Tensor, ...]:
    """Return the directions of orthogonal layers as columns."""
    weights: list[Any] = [linear.weight for linear in rotations]
    return tuple(weight.T for weight in weights)


class _Rotation(nn.Module):
    """K orthonormal directions of each piece; they start where source and base differ most."""

    def __init__(self, runs: InterchangeRuns, place: HeldPlace, k: int) -> None:
        super().__init__()
        rotations = []
        for at, piece in enumerate(place.pieces):
            base, source = runs.held(place, at)
            n = min(k, piece.width)
            start = torch.linalg.svd(source - base, full_matrices=False).Vh[:n]
            start = torch.cat([start, torch.randn(n - len(start), piece.width)])
            start = start + 0.1 * torch.randn_like(start) / math.sqrt(piece.width)
            linear = nn.Linear(piece.width, n, bias=False)
            with torch.no_grad():
                linear.weight.copy_(torch.linalg.qr(start.T).Q.T)
            rotations.append(orthogonal(linear, orthogonal_map="householder"))
        self.rotation = nn.ModuleList(rotations)

    def forward(self, done: float) -> tuple[Subspace, Tensor | float]:
        return Subspace.of(_columns(self.rotation)), 0.0

    def hard(self) -> Subspace:
        """Return the directions as they are."""
        return Subspace.of([x.detach().clone() for x in _columns(self.rotation)])


class _Mask(nn.Module):
    """A mask over directions: learned ones with a boundary, single columns, or whole pieces."""

    def __init__(self, widths: list[int], method: Method) -> None:
        super().__init__()
        self.widths, self.method = widths, method
        n = {
            "boundless": lambda w: 1,
            "mask": lambda w: w,
            "heads": lambda w: 1,
            "features": lambda w: w,
        }[method]
        self.gate = nn.ParameterList([nn.Parameter(torch.zeros(n(w))) for w in widths])
        if method == "boundless":
            linears = [nn.Linear(w, w, bias=False) for w in widths]
            for linear in linears:
                nn.init.orthogonal_(linear.weight)
            self.rotation = nn.ModuleList([orthogonal(x, orthogonal_map="cayley") for x in linears])

    def _weights(self, temperature: float) -> list[Tensor]:
        weights = []
        for gate, width in zip(self.gate, self.widths, strict=True):
            if self.method == "boundless":
                boundary = torch.sigmoid(gate) * width  # the number of directions inside
                at = torch.arange(width) + 0.5
                weights.append(torch.sigmoid((boundary - at) / (temperature * width / 16)))
            else:
                weights.append(torch.sigmoid(gate / temperature).expand(width))
        return weights

    def forward(self, done: float) -> tuple[Subspace, Tensor | float]:
        weights = self._weights(WARM * (COLD / WARM) ** done)
        price = PRICE[self.method] * torch.stack([w.mean() for w in weights]).mean()
        return Subspace(self._basis(), tuple(weights)), price

    def _basis(self) -> tuple[Tensor, ...]:
        if self.method == "boundless":
            return _columns(self.rotation)
        return tuple(torch.eye(w) for w in self.widths)

    def hard(self) -> Subspace:
        """Return the directions whose weight is above 1/2, each as a whole."""
        chosen = [w.detach() > 0.5 for w in self._weights(COLD)]
        pairs = zip(self._basis(), chosen, strict=True)
        return Subspace.of([x.detach()[:, w].clone() for x, w in pairs])


class _FeatureMask(_Mask):
    """A mask over the features of a dictionary."""

    def __init__(self, dictionary: Dictionary) -> None:
        super().__init__([dictionary.d_sae], "features")
        self.dictionary = dictionary

    def _of(self, weight: Tensor) -> FeatureSubspace:
        every = FeatureSubspace.of_features(self.dictionary, range(len(weight)))
        return replace(every, weight=(weight,))

    def forward(self, done: float) -> tuple[Subspace, Tensor | float]:
        [weight] = self._weights(WARM * (COLD / WARM) ** done)
        return self._of(weight), PRICE["features"] * weight.mean()

    def hard(self) -> Subspace:
        """Return the features whose weight is above 1/2, each as a whole."""
        [weight] = self._weights(COLD)
        chosen = (weight.detach() > 0.5).nonzero().flatten().tolist()
        return FeatureSubspace.of_features(self.dictionary, chosen)


def whole(place: HeldPlace) -> Subspace:
    """Return the whole of a place: everything is exchanged."""
    return Subspace.of([torch.eye(piece.width) for piece in place.pieces])


def random_like(subspace: Subspace, seed: int) -> Subspace:
    """Return a random subspace with as many directions in every piece.

    Where whole pieces are exchanged, such as some of all heads, as many other ones; where features
    are, as many others of the dictionary.
    """
    if isinstance(subspace, FeatureSubspace) and subspace.dictionary is not None:
        rest = sorted(set(range(subspace.dictionary.d_sae)) - set(subspace.features))
        with drawn_with(seed):
            order = torch.randperm(len(rest)).tolist()
        drawn = [rest[i] for i in order[: len(subspace.features)]]
        return FeatureSubspace.of_features(subspace.dictionary, drawn)
    full = [x.shape[1] == x.shape[0] for x in subspace.basis]
    with drawn_with(seed):
        if len(full) > 1 and all(x.shape[1] in (0, x.shape[0]) for x in subspace.basis):
            order = [i for i in torch.randperm(len(full)).tolist() if not full[i]]
            order += [i for i in torch.randperm(len(full)).tolist() if full[i]]
            chosen = order[: sum(full)]
            basis = [
                torch.eye(len(x))[:, : len(x) * (i in chosen)] for i, x in enumerate(subspace.basis)
            ]
        else:
            basis = [torch.linalg.qr(torch.randn_like(x)).Q for x in subspace.basis]
    return Subspace.of(basis)


def varying(runs: InterchangeRuns, place: HeldPlace) -> tuple[Tensor, ...]:
    """Return, by piece, the directions in which a place varies over the prompts.

    They are the principal components that hold 99.9 % of the variance.
    """
    directions = []
    for at in range(len(place.pieces)):
        x = torch.cat(runs.held(place, at))
        s, v = torch.linalg.svd(x - x.mean(0), full_matrices=False)[1:]
        share = (s**2).cumsum(0) / (s**2).sum().clamp_min(1e-30)
        directions.append(v[: int((share < VARIES).sum()) + 1].T)
    return tuple(directions)
