"""Training loop of dictionaries: steps of Adam, dead features, thresholds, learning curve."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.core.errors import NonFiniteError, OptionError, UnknownName
from interp.core.protocols import Progress
from interp.dictionaries.activations import RowPair
from interp.dictionaries.objectives import TRAINED, Trainable

if TYPE_CHECKING:
    pass

DEAD = ("auxk", "resample", "none")
POINTS = 40  # points of the learning curve
PACE = 0.02  # step of the logarithm of the coefficient that holds the number of codes at k
THRESHOLD_RATE = 5  # learning rate of the logarithm of thresholds, in that of the rest
REVIVED = 0.2  # encoder of a resampled feature, in norms of the alive ones; 1 where k are kept


@dataclass(frozen=True)
class LoopSettings:
    """Options of the loop."""

    steps: int
    batch_rows: int
    rate: float
    sparsity: float | None
    dead: str
    dead_after: int


@dataclass(frozen=True, eq=False)
class FittedDictionary:
    """Parameters before and after training, scales of the activations, and the curve."""

    trained: Trainable
    untrained: Trainable
    scales: tuple[float, float]
    curve: dict[str, list[float]]


def fitted_dictionary(
    batches: Iterator[RowPair],
    architecture: str,
    shape: tuple[int, int, int, int],
    settings: LoopSettings,
    name: str,
    seed: int,
    progress: Progress | None,
    transcoder: bool,
) -> FittedDictionary:
    """Train a dictionary on batches, from directions and scales of the first of them."""
    start = [next(batches) for _ in range(4)]
    x, y = (torch.cat(each) for each in zip(*start, strict=True))
    scales = (_scale(x, name), _scale(y, name))
    with torch.enable_grad():
        trainable = Trainable(
            architecture,
            *shape,
            y.mean(0) * scales[1],
            transcoder,
            torch.Generator().manual_seed(seed),
        )
        untrained = _calibrated(trainable, x * scales[0], shape[3])
        if architecture == "jumprelu":
            trainable = copy.deepcopy(untrained)
        loop = _Loop(trainable, settings, scales, name, seed)
        curve = loop.run(batches, progress)
    return FittedDictionary(trainable, untrained, scales, curve)


def checked_settings(
    architecture: str,
    dead: str,
    dead_after: int,
    steps: int,
    batch_rows: int,
    rate: float,
    sparsity: float | None,
    k: int,
    d_sae: int,
) -> LoopSettings:
    """Return the options of the loop."""
    for what, name, known in (("architecture", architecture, TRAINED), ("treatment", dead, DEAD)):
        if name not in known:
            raise UnknownName(f"{what} of dictionaries", name, known)
    numbers = {"steps": steps, "batch_rows": batch_rows, "k": k, "dead_after": dead_after}
    wrong = [f"{name}={x}" for name, x in numbers.items() if x < 1]
    if wrong or not 1 <= k <= d_sae or not rate > 0 or (sparsity is not None and sparsity < 0):
        raise OptionError(
            f"{', '.join(wrong) or f'k={k}, d_sae={d_sae}, rate={rate}, sparsity={sparsity}'}; "
            "counts must be at least 1, k at most d_sae, the rate above 0, and the sparsity not "
            "negative"
        )
    return LoopSettings(steps, batch_rows, rate, sparsity, dead, dead_after)


def _scale(x: Tensor, name: str) -> float:
    """Return the factor to a mean squared norm of the width."""
    size = float(x.square().sum(1).mean())
    if not size > 0 or not math.isfinite(size):
        raise NonFiniteError(f"{name}: the activations are all 0 or not finite")
    return math.sqrt(x.shape[1] / size)


@torch.no_grad()
def _calibrated(trainable: Trainable, x: Tensor, k: int) -> Trainable:
    """Return a copy whose activation lets k codes through on average, without training.

    An untrained dictionary with its initial thresholds would have far more codes than the trained
    one, and so would be no control of it.
    """
    calibrated = copy.deepcopy(trainable)
    if calibrated.architecture == "topk":
        return calibrated
    pre = calibrated.pre(x)
    limit = float(pre.flatten().kthvalue(pre.numel() - k * len(pre)).values.clamp_min(1e-6))
    if calibrated.architecture == "jumprelu":
        calibrated.log_threshold.fill_(math.log(limit))
    elif calibrated.architecture == "batchtopk":
        calibrated.topk_threshold.fill_(limit)
    else:
        calibrated.b_enc.sub_(limit)
        if calibrated.architecture == "gated":
            calibrated.b_mag.copy_(calibrated.b_enc)
    return calibrated


class _Loop:
    """Steps of Adam on one dictionary, with dead features revived and a learning curve."""

    def __init__(
        self,
        trainable: Trainable,
        settings: LoopSettings,
        scale: tuple[float, float],
        name: str,
        seed: int,
    ) -> None:
        self.trained, self.settings, self.scale, self.name = trainable, settings, scale, name
        named = dict(trainable.named_parameters())
        slow = [named.pop("log_threshold")] if "log_threshold" in named else []
        groups = [{"params": list(named.values()), "factor": 1.0}]
        groups += [{"params": slow, "factor": THRESHOLD_RATE}] if slow else []
        self.adam = torch.optim.Adam(groups, lr=settings.rate)
        self.silent = torch.zeros(trainable.W_enc.shape[1], dtype=torch.long)
        self.generator = torch.Generator().manual_seed(seed + 1)
        self.coefficient = 1.0 if settings.sparsity is None else settings.sparsity
        self.revived = 0

    def run(self, batches: Any, progress: Progress | None) -> dict[str, list[float]]:
        every = max(1, self.settings.steps // POINTS)
        resampled = {max(1, self.settings.steps * i // 20) for i in (3, 6, 9, 12)}
        names = ("step", "loss", "explained_variance", "l0", "dead_share", "coefficient", "revived")
        curve: dict[str, list[float]] = {name: [] for name in names}
        for step in range(1, self.settings.steps + 1):
            x, y = next(batches)
            x, y = x * self.scale[0], y * self.scale[1]
            loss, codes, reconstruction = self._step(x, y, step)
            if self.settings.dead == "resample" and step in resampled:
                self._resample(x, y, reconstruction)
            if step % every == 0 or step == self.settings.steps:
                rest = (y - reconstruction).double().square().sum() / (
                    (y - y.mean(0)).double().square().sum().clamp_min(1e-30)
                )
                dead = (self.silent >= self.settings.dead_after).double().mean()
                point = (
                    step,
                    loss,
                    1 - float(rest),
                    float((codes > 0).sum(1).double().mean()),
                    float(dead),
                    self.coefficient,
                    self.revived,
                )
                for name, value in zip(names, point, strict=True):
                    curve[name].append(float(value))
                if progress is not None:
                    progress("dictionary", step, self.settings.steps)
        return curve

    def _step(self, x: Tensor, y: Tensor, step: int) -> tuple[float, Tensor, Tensor]:
        rest = (self.settings.steps - step + 1) / max(1, self.settings.steps // 5)
        for group in self.adam.param_groups:
            group["lr"] = self.settings.rate * group["factor"] * min(1.0, rest)
        dead = self.silent >= self.settings.dead_after if self.settings.dead == "auxk" else None
        loss, codes, reconstruction = self.trained.loss(x, y, self.coefficient, dead)
        if not bool(torch.isfinite(loss)):
            raise NonFiniteError(
                f"{self.name}: training of the dictionary diverges at step {step} (the loss is "
                f"{float(loss.detach())}); give a lower rate or another seed"
            )
        self.adam.zero_grad()
        loss.backward()
        self.trained.remove_parallel()
        self.adam.step()
        self.trained.unit_rows()
        codes = codes.detach()
        active = codes > 0
        self.silent = torch.where(active.any(0), 0, self.silent + 1)
        if self.settings.sparsity is None:
            off = math.log(max(float(active.sum(1).double().mean()), 0.01) / self.trained.k)
            self.coefficient *= math.exp(PACE * max(-1.0, min(1.0, off)))
        return float(loss.detach()), codes, reconstruction.detach()

    @torch.no_grad()
    def _resample(self, x: Tensor, y: Tensor, found: Tensor) -> None:
        """Point dead features at rows drawn by their squared error, squared (Anthropic 2023)."""
        trained = self.trained
        dead = torch.nonzero(self.silent >= self.settings.dead_after).flatten()[: len(x)]
        error = (y - found).square().sum(1)
        if not len(dead) or float(error.sum()) == 0:
            return
        weights = error.square() / error.square().sum()
        # the first arrivals of exponential clocks of these rates: draws without replacement
        clocks = torch.empty_like(weights).exponential_(generator=self.generator)
        some = (clocks / (weights + 1e-12)).argsort()[: len(dead)]
        alive = torch.ones(len(self.silent), dtype=torch.bool)
        alive[dead] = False
        size = trained.W_enc[:, alive].norm(dim=0).mean() if bool(alive.any()) else 1.0
        written = y[some] - trained.b_dec
        written = written / written.norm(dim=1, keepdim=True).clamp_min(1e-8)
        read = x[some] if trained.transcoder else written
        read = read / read.norm(dim=1, keepdim=True).clamp_min(1e-8)
        trained.W_dec[dead] = written
        # a small encoder would never be among the k largest
        share = 1.0 if trained.architecture in ("topk", "batchtopk") else REVIVED
        trained.W_enc[:, dead] = read.T * size * share
        trained.b_enc[dead] = 0
        if trained.architecture == "gated":
            trained.b_mag[dead] = 0
            trained.r_mag[dead] = 0
        if trained.architecture == "jumprelu":
            trained.log_threshold[dead] = trained.log_threshold[alive].min() - 1
        for parameter, state in self.adam.state.items():
            # features are columns of the encoder, rows of the decoder and entries of biases
            of_features = parameter is not trained.b_dec
            for name in ("exp_avg", "exp_avg_sq"):
                if parameter is trained.W_enc:
                    state[name][:, dead] = 0
                elif of_features:
                    state[name][dead] = 0
        self.silent[dead] = 0
        self.revived += len(dead)
