"""Outliers of whole layers: infinity norm, kurtosis and massive activations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import NonFiniteError, OptionError, UnknownName, UnreadableAttention
from interp.core.prompts import Prompts
from interp.core.result import Result
from interp.heads.one_call import equal_lengths, reduced, sees, visible_mean
from interp.heads.outliers.passes import HeadValues, captured, each_call
from interp.model.activation_names import STREAM_NAMES
from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp_kernels.reductions import RightProduct

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model


@takes_model
def value_shortfall(model: Model, prompts: Any, *, engine: str = "auto") -> HeadValues:
    """Measure how far a head's attended values fall short of the usual norm, `[prompt, head]`.

    1 - (sum over keys of attention times value norm) / (mean value norm of the visible keys),
    averaged over the queries that see at least two keys: 0 for a head that attends uniformly, 1 for
    one that attends only to values of size zero, negative for one that prefers large values.

    Unit: share of the usual value norm.

    Cost: One forward pass per prompt.

    Null: 0 for uniform attention.

    Not for: use alone; `written_share` shows whether the head writes little.

    Reference: Bondarenko et al. 2023.
    """

    def measure(site: Site, call: Call, engine: str) -> tuple[Tensor, ...]:
        size = repeat_kv(call.v.float().norm(dim=-1), call.n_heads)
        got = reduced(call, RightProduct(size[..., None]), engine)[..., 0].double()
        usual = visible_mean(call, size.double())
        several = (sees(call) > 1) & (usual > 0)
        short = torch.where(several, 1 - got / usual.clamp_min(1e-30), torch.nan)
        return (short.nanmean(-1),)

    shortfalls = each_call(model, prompts, measure, engine=engine)
    return {site: x[0] for site, x in shortfalls.items()}


@takes_model
def written_share(model: Model, prompts: Any) -> HeadValues:
    """Measure the norm of a head's output over that of the residual stream, `[prompt, head]`.

    The mean over positions of |result| / |resid_pre|, where `result` is what the head adds to the
    stream; near 0 for a no-op head, whatever its attention pattern.

    Unit: share of the stream's norm.

    Cost: One forward pass per prompt.

    Null: the same measure on random weights, as in the experiment `no_op_written`.

    Not for: models that normalise the sum of stream and attention, such as BERT.

    Reference: Bondarenko et al. 2023.
    """

    def measure(site: Site, x: dict[str, Tensor]) -> Tensor:
        stream = x["resid_pre"].norm(dim=-1)
        return (x["result"].norm(dim=-1) / stream[..., None].clamp_min(1e-30)).mean(1)

    return captured(model, prompts, ("result", "resid_pre"), measure)


@takes_model
def result_kurtosis(model: Model, prompts: Any) -> HeadValues:
    """Measure the kurtosis of all entries that a head writes for a prompt; see `kurtosis`.

    Unit: kurtosis.

    Cost: One forward pass per prompt.

    Null: 3 for Gaussian entries.

    Not for: claims that should not depend on the basis.

    Reference: Bondarenko et al. 2023.
    """
    return captured(model, prompts, ("result",), lambda site, x: kurtosis(_rows(x["result"])))


@takes_model
def result_inf_norm(model: Model, prompts: Any) -> HeadValues:
    """Measure the largest absolute entry that a head writes for a prompt.

    Unit: size of an entry.

    Cost: One forward pass per prompt.

    Null: the same measure on random weights, as in the experiment `outliers_inf_norm`.

    Not for: comparing models.

    Reference: Bondarenko et al. 2023.
    """
    return captured(model, prompts, ("result",), lambda site, x: _rows(x["result"]).abs().amax(-1))


def kurtosis(x: Float[Tensor, "*rows entries"], *, beside: float = 0.0) -> Float[Tensor, "*rows"]:
    """Compute the fourth central moment over the squared variance.

    It is 3 for a Gaussian and about n for a single spike among n entries.

    This is not the excess kurtosis; the variance is unbiased. The result is 0 if all entries are
    equal.
    """
    centred = x - x.mean(-1, keepdim=True)
    below = x.var(-1) ** 2 + beside
    return torch.where(below > 0, (centred**4).mean(-1) / below.clamp_min(1e-300), 0.0)


def _rows(result: Float[Tensor, "batch pos head d_model"]) -> Float[Tensor, "batch head entries"]:
    return result.transpose(1, 2).flatten(2)


SIZE, TIMES = 100.0, 1000.0
BESIDE = 1e-6  # added to the squared variance in Bondarenko et al.'s run_clm.py
MEASURES = {
    "inf_norm": "activation",
    "kurtosis": "",
    "largest": "activation",
    "median": "activation",
    "massive": "entries",
}
"""Measures of a layer, with their units."""
_KEPT = 20  # maximum number of examples per layer and activation


@dataclass(frozen=True)
class Activation:
    """One massive activation: its place, its value, and the ratio to the layer's median size."""

    prompt: int
    position: int
    dimension: int
    value: float
    times_median: float


@dataclass(frozen=True)
class LayerOutliers:
    """Outlier measures of one activation of one layer over all prompts.

    Args:
        inf_norm, kurtosis: infinity norm and kurtosis of each prompt's entries (tokens times
            d_model), averaged over prompts.
        largest: the largest absolute entry of any prompt.
        median: the median absolute value of an entry, over prompts.
        massive: number of massive entries; `examples` are the largest of them.
        dimensions, positions: their dimensions and positions, each listed once.
    """

    stack: str
    layer: int
    name: str
    inf_norm: float
    kurtosis: float
    largest: float
    median: float
    massive: int
    dimensions: tuple[int, ...]
    positions: tuple[int, ...]
    n: int
    examples: tuple[Activation, ...] = field(repr=False)


@dataclass(frozen=True, repr=False)
class Outliers(Result):
    """Outlier measures of every requested layer and activation, in the order of the layers.

    `to_pandas` has one row per layer, activation and measure; `wide` one per layer and activation.
    """

    layers: tuple[LayerOutliers, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "for activations of whole layers, only means over prompts are stored"
    _units = ("stack", "layer", "name", "metric")
    _holds = (LayerOutliers, Activation)

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        rows = [
            {
                "stack": x.stack,
                "layer": x.layer,
                "name": x.name,
                "metric": metric,
                "n": x.n,
                "score": float(getattr(x, metric)),
                "unit": unit,
            }
            for x in self.layers
            for metric, unit in MEASURES.items()
        ]
        return pd.DataFrame(rows)

    def wide(self) -> pd.DataFrame:
        """Return one row per layer and activation; after `top`, the rows that it kept."""
        return self.by_layer() if self._kept is None else self.to_pandas()

    def by_layer(self) -> pd.DataFrame:
        """Return one row per layer and activation."""
        import pandas as pd

        rows = [
            {k: v for k, v in vars(x).items() if k not in ("examples", "dimensions", "positions")}
            | {
                "dimensions": " ".join(map(str, x.dimensions)),
                "positions": " ".join(map(str, x.positions)),
            }
            for x in self.layers
        ]
        return pd.DataFrame(rows)

    def model_wide(self, name: str) -> dict[str, float]:
        """Return Bondarenko et al.'s two numbers of a model: largest infinity norm, mean kurtosis.

        Raises:
            UnknownName: the activation was not measured.
        """
        mine = [x for x in self.layers if x.name == name]
        if not mine:
            raise UnknownName("measured activation", name, {x.name for x in self.layers})
        return {
            "inf_norm": max(x.inf_norm for x in mine),
            "kurtosis": math.fsum(x.kurtosis for x in mine) / len(mine),
        }


@takes_model
def layer_outliers(
    model: Model,
    prompts: Any,
    *,
    names: Sequence[str] = ("resid_post", "attn_out", "mlp_out"),
    size: float = SIZE,
    times: float = TIMES,
) -> Outliers:
    """Measure infinity norm, kurtosis and massive activations of every layer.

    Args:
        model: the model to run.
        prompts: texts, ids or `Prompts`.
        names: activations of `interp.model.activation_names.STREAM_NAMES`; those that a layer does
            not have are omitted.
        size: minimum absolute value of a massive entry (100 in Sun et al. 2024, "Massive
            Activations in Large Language Models").
        times: minimum ratio of a massive entry to the median absolute value of its layer (about
            1000 in the same paper).

    Raises:
        UnknownName: an activation does not exist.
        OptionError: a threshold is below zero.
        UnreadableAttention: no layer has any of the activations.
        NonFiniteError: NaN or infinity in an activation; the layer is named.

    Unit: size of an entry, kurtosis, counts.

    Cost: One forward pass per prompt.

    Null: kurtosis 3 of Gaussian entries.

    Not for: small models with the published thresholds: their residual streams are small.

    Reference: Sun et al. 2024, "Massive Activations in Large Language Models"; Bondarenko et al.
    2023, "Quantizable Transformers".
    """
    for name in names:
        if name not in STREAM_NAMES:
            raise UnknownName("activation of a layer", name, STREAM_NAMES)
    if size < 0 or times < 0:
        raise OptionError(f"size={size}, times={times}: both must be at least 0")
    tokenized = Prompts.of(prompts, model)
    tokenized.check(model)
    activations: dict[tuple[str, int, str], list[tuple[int, Tensor]]] = {}
    for site in model.sites:
        for name in names:
            if name in site.streams:
                activations[site.stack, site.layer, name] = []
    if not activations:
        raise UnreadableAttention(f"{model.name} has none of {', '.join(names)} in any layer")
    for which, batch in equal_lengths(tokenized):
        for site in model.sites:
            mine = [n for n in names if (site.stack, site.layer, n) in activations]
            if not mine:
                continue
            cache = model.capture(batch, mine, layers=site.layer, stack=site.stack)
            for name in mine:
                x = cache[name, site.layer, site.stack].double().cpu()
                if not bool(torch.isfinite(x).all()):
                    raise NonFiniteError(f"{model.name}: NaN or infinity in {name} of {site.name}")
                activations[site.stack, site.layer, name] += list(zip(which, x, strict=True))
    provenance = result_provenance(
        model,
        "interp.heads.outliers.layer_outliers",
        tokenized,
        names=list(names),
        size=size,
        times=times,
    )
    return Outliers(
        tuple(_measured(*key, x, size, times) for key, x in activations.items()), provenance
    )


def _measured(
    stack: str, layer: int, name: str, rows: list[tuple[int, Tensor]], size: float, times: float
) -> LayerOutliers:
    flat = [x.flatten() for _, x in rows]
    median = float(torch.cat(flat).abs().median())
    examples: list[Activation] = []
    for prompt, x in rows:
        where = (x.abs() > size) & (x.abs() >= times * median)
        for position, dimension in where.nonzero().tolist():
            value = float(x[position, dimension])
            over = abs(value) / median if median else math.inf
            examples.append(Activation(prompt, position, dimension, value, over))
    examples.sort(key=lambda a: -abs(a.value))
    return LayerOutliers(
        stack,
        layer,
        name,
        inf_norm=math.fsum(float(x.abs().max()) for x in flat) / len(flat),
        kurtosis=math.fsum(float(kurtosis(x, beside=BESIDE)) for x in flat) / len(flat),
        largest=max(float(x.abs().max()) for x in flat),
        median=median,
        massive=len(examples),
        dimensions=tuple(sorted({a.dimension for a in examples})),
        positions=tuple(sorted({a.position for a in examples})),
        n=len(rows),
        examples=tuple(examples[:_KEPT]),
    )
