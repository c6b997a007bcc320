"""Training of sparse dictionaries and transcoders from streamed activations."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import NonFiniteError, OptionError, UnknownName
from interp.core.prompts import Prompts, bos_id
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.dictionaries.activations import FIRST, ROWS, ActivationStream, RowPair
from interp.dictionaries.curve_columns import CURVE_FACTS, curve_columns
from interp.dictionaries.dictionary import Dictionary
from interp.dictionaries.objectives import TRAINED, Trainable
from interp.model.content import result_provenance
from interp.model.layer_tensors import place_width, require_place
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

DEAD = ("auxk", "resample", "none")
POINTS = 40  # points of the learning curve
PACE = 0.02  # step of the logarithm of the coefficient that holds the number of codes at k
THRESHOLD_RATE = 5  # learning rate of the logarithm of thresholds, in that of the rest
REVIVED = 0.2  # encoder of a resampled feature, in norms of the alive ones; 1 where k are kept


@dataclass(frozen=True)
class _Settings:
    """Options of the loop."""

    steps: int
    batch_rows: int
    rate: float
    sparsity: float | None
    dead: str
    dead_after: int


@takes_model
def train_dictionary(
    model: Model,
    prompts: Any,
    *,
    layer: int,
    site: str = "z",
    site_out: str | None = None,
    stack: str | None = None,
    architecture: str = "topk",
    d_sae: int | None = None,
    k: int = 8,
    sparsity: float | None = None,
    dead: Literal["auxk", "resample", "none"] = "auxk",
    dead_after: int = 100,
    steps: int = 1000,
    batch_rows: int = 512,
    rate: float = 2e-3,
    buffer_rows: int = ROWS,
    first: int = FIRST,
    batch_size: int = 16,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Train a sparse dictionary of the activations of one layer, or a transcoder of its attention.

    Activations are scaled in training, and the scale is folded into the weights that are returned.
    Rows of the decoder keep norm 1.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        prompts: texts, ids or `Prompts` to train on; keep others for `score_dictionary`.
        layer: the layer.
        site: place that is read: z (all heads, concatenated), attn_out, a stream, or attn_in.
        site_out: place that is reconstructed, if not the same: `site="attn_in",
            site_out="attn_out"` is a transcoder of the attention layer.
        stack: attention stack, where a layer number is not enough.
        architecture: standard, topk, batchtopk (kept as jumprelu), jumprelu or gated.
        d_sae: number of features; by default four times the entries that are read.
        k: codes per position. For standard, gated and jumprelu, the number that the coefficient of
            sparsity is steered to.
        sparsity: a fixed coefficient of sparsity in place of the steered one.
        dead: what is done about features without a code in the last `dead_after` steps: "auxk" lets
            them reconstruct the error; "resample" points them at rows that are reconstructed badly,
            four times in the first 60 % of the steps; "none".
        dead_after: number of steps.
        steps: number of steps.
        batch_rows: rows (positions of prompts) per step.
        rate: learning rate of Adam; it falls to 0 over the last fifth of the steps.
        buffer_rows: rows of the shuffled buffer, which bounds the memory; see `ActivationStream`.
        first: positions at the beginning of each prompt that are left out.
        batch_size: prompts per forward pass.
        seed: seed of initial directions and of all orders.
        progress: see `Progress`.

    Returns:
        One row per recorded step: step, loss, score (explained variance of that step's batch), l0
        (codes per row), dead_share (features without a code in the last `dead_after` steps),
        coefficient of sparsity, revived (features that were resampled so far) and n, the rows of a
        batch. Objects, which files do not hold: dictionary, the trained one, and untrained, the one
        that training began with, its activation set to the same number of codes.

    Raises:
        UnknownName: the architecture, place or treatment of dead features does not exist.
        OptionError: a number is out of range.
        UnreadableAttention: the model has no such tensor in this layer.
        NonFiniteError: activations are not finite, or training diverges; nothing is written.

    Unit: explained variance of a batch, along the steps.

    Cost: One forward pass of the prompts if their rows fit the buffer, otherwise one per round of
        the prompts, and `steps` steps on the dictionary.

    Null: the untrained dictionary and others, by `score_dictionary` on other prompts.

    Not for: judging a dictionary by its training curve; score it on held-out prompts.

    Reference: Kissane et al. 2024, "Interpreting Attention Layer Outputs with Sparse Autoencoders"
    (arXiv 2406.17759); Gao et al. 2024 (arXiv 2406.04093) for TopK and AuxK; Bussmann et al. 2024
    (arXiv 2412.06410) for batch TopK; Rajamanoharan et al. 2024 for gated (arXiv 2404.16014) and
    JumpReLU (arXiv 2407.14435).
    """
    given = Prompts.of(prompts, model)
    where = model.site(layer, stack)
    out = site_out or site
    for name in (site, out):
        require_place(name, where)
    d_in, d_out = place_width(model, site, where), place_width(model, out, where)
    d_sae = 4 * d_in if d_sae is None else d_sae
    settings = _checked(architecture, dead, dead_after, steps, batch_rows, rate, sparsity, k, d_sae)
    stream = ActivationStream(
        model, given, where, (site, out), buffer_rows, first, batch_size, seed
    )
    options = {
        "layer": layer, "site": site, "site_out": out, "architecture": architecture,
        "d_sae": d_sae, "k": k, "sparsity": "steered to k" if sparsity is None else sparsity,
        "dead": dead, "dead_after": dead_after, "steps": steps, "batch_rows": batch_rows,
        "rate": rate, "buffer_rows": buffer_rows, "first": first, "seed": seed,
    }  # fmt: skip
    made = result_provenance(model, "interp.dictionaries.train_dictionary", given, **options)
    longest = max(map(len, given.ids))
    bos = bos_id(model)
    about = {
        "site": site, "site_out": out, "layer": where.layer, "stack": where.stack,
        "n_heads": where.n_heads if site == "z" else None,
        "model": {"name": model.name, "hash": model.content_hash},
        "about": {"options": options, "prompts": {
            "hash": given.hash, "n": len(given), "max_length": longest,
            "bos": bos is not None and all(ids[0] == bos for ids in given.ids)}},
    }  # fmt: skip
    found = _fitted(
        stream.batches(batch_rows), architecture, (d_in, d_out, d_sae, k), settings,
        f"{model.name}, {where.name}", seed, progress, out != site,
    )  # fmt: skip
    objects = {
        "dictionary": found.trained.dictionary(*found.scales, **about),
        "untrained": found.untrained.dictionary(*found.scales, **about),
    }
    return ResultRows(
        "DictionaryTraining", curve_columns(found.curve, made["options"]["batch_rows"]), ("step",),
        made | {"buffer_bytes": stream.memory_bytes}, CURVE_FACTS, objects=objects,
        why_no_per_prompt="a step is a batch of positions of many prompts",
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Fitted:
    """Parameters before and after training, scales of the activations, and the curve."""

    trained: Trainable
    untrained: Trainable
    scales: tuple[float, float]
    curve: dict[str, list[float]]


def _fitted(
    batches: Iterator[RowPair], architecture: str, shape: tuple[int, int, int, int],
    settings: _Settings, name: str, seed: int, progress: Progress | None, transcoder: bool,
) -> _Fitted:  # fmt: skip
    start = [next(batches) for _ in range(4)]
    x, y = (torch.cat(each) for each in zip(*start, strict=True))
    scales = (_scale(x, name), _scale(y, name))
    with torch.enable_grad():
        trainable = Trainable(
            architecture, *shape, y.mean(0) * scales[1], transcoder,
            torch.Generator().manual_seed(seed),
        )  # fmt: skip
        untrained = _calibrated(trainable, x * scales[0], shape[3])
        if architecture == "jumprelu":
            trainable = copy.deepcopy(untrained)
        loop = _Loop(trainable, settings, scales, name, seed)
        curve = loop.run(batches, progress)
    return _Fitted(trainable, untrained, scales, curve)


def fit_rows(
    rows: Float[Tensor, "row width"],
    *,
    architecture: str = "topk",
    d_sae: int,
    k: int = 8,
    sparsity: float | None = None,
    dead: Literal["auxk", "resample", "none"] = "auxk",
    dead_after: int = 100,
    steps: int = 1000,
    batch_rows: int = 512,
    rate: float = 2e-3,
    seed: int = 0,
) -> Dictionary:
    """Train a dictionary on given activations, such as a planted data set, without a model.

    Args:
        rows: the activations.
        architecture: as for `train_dictionary`, with all other options.
        d_sae: number of features.
        k: codes per row.
        sparsity: a fixed coefficient of sparsity in place of one steered to k.
        dead: what is done about dead features.
        dead_after: steps without a code after which a feature is dead.
        steps: number of steps.
        batch_rows: rows per step.
        rate: learning rate of Adam.
        seed: seed of initial directions and order.

    Raises:
        UnknownName: the architecture or treatment of dead features does not exist.
        OptionError: a number is out of range.
        NonFiniteError: rows are not finite, or training diverges.
    """
    settings = _checked(architecture, dead, dead_after, steps, batch_rows, rate, sparsity, k, d_sae)
    if len(rows) < 2 or not bool(torch.isfinite(rows).all()):
        raise NonFiniteError("the rows must be at least two, without NaN and infinity")
    rng = torch.Generator().manual_seed(seed)

    def batches() -> Iterator[RowPair]:
        while True:
            at = torch.randint(len(rows), (batch_rows,), generator=rng)
            yield rows[at], rows[at]

    width = rows.shape[1]
    found = _fitted(
        batches(), architecture, (width, width, d_sae, k), settings, "rows", seed, None, False
    )
    return found.trained.dictionary(*found.scales, site="z", layer=0, about={"made_of": "rows"})


def _checked(
    architecture: str, dead: str, dead_after: int, steps: int, batch_rows: int, rate: float,
    sparsity: float | None, k: int, d_sae: int,
) -> _Settings:  # fmt: skip
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
    return _Settings(steps, batch_rows, rate, sparsity, dead, dead_after)


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
    found = copy.deepcopy(trainable)
    if found.architecture == "topk":
        return found
    pre = found.pre(x)
    limit = float(pre.flatten().kthvalue(pre.numel() - k * len(pre)).values.clamp_min(1e-6))
    if found.architecture == "jumprelu":
        found.log_threshold.fill_(math.log(limit))
    elif found.architecture == "batchtopk":
        found.topk_threshold.fill_(limit)
    else:
        found.b_enc.sub_(limit)
        if found.architecture == "gated":
            found.b_mag.copy_(found.b_enc)
    return found


class _Loop:
    """Steps of Adam on one dictionary, with dead features revived and a learning curve."""

    def __init__(
        self, trainable: Trainable, settings: _Settings, scale: tuple[float, float], name: str,
        seed: int,
    ) -> None:  # fmt: skip
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
            loss, codes, found = self._step(x, y, step)
            if self.settings.dead == "resample" and step in resampled:
                self._resample(x, y, found)
            if step % every == 0 or step == self.settings.steps:
                rest = (y - found).double().square().sum() / (
                    (y - y.mean(0)).double().square().sum().clamp_min(1e-30)
                )
                dead = (self.silent >= self.settings.dead_after).double().mean()
                point = (step, loss, 1 - float(rest), float((codes > 0).sum(1).double().mean()),
                         float(dead), self.coefficient, self.revived)  # fmt: skip
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
        loss, codes, found = self.trained.loss(x, y, self.coefficient, dead)
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
        return float(loss.detach()), codes, found.detach()

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
