"""Roofline of a scoring run: operations, bytes, and which of the two a machine runs out of."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from interp.core.errors import OptionError, PromptError
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.heads.declaration import BoundAnalysis, bound
from interp.heads.scoring import choose_engine
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

PER_ENTRY = {
    # operations per query and visible key: a product and a sum, or as many as the formula has
    "Entropy": 2,
    "Largest": 1,
    "Mass": 3,
    "Targets": 2,
    "PairMass": 3,
    "KeySetMass": 2,
    "SegmentMass": 2,
    "Distance": 3,
    "Received": 1,
    "ReceivedValueWeighted": 2,
    "PooledMap": 1,
    "Diagonal": 1,
    "Moments": 4,
    "TopK": 4,
}
OTHERS = 2  # of a reduction that is not named above
MEASURE = 2  # of a measure that reads the pattern itself, at least
SOFTMAX = 5  # scale, maximum, difference, exponential, sum
_TRIES = 3


@dataclass(frozen=True)
class Machine:
    """Peak rates of a machine.

    Args:
        operations: Floating-point operations per second.
        bandwidth: Bytes per second to and from memory.
        name: How the rates were found.
    """

    operations: float
    bandwidth: float
    name: str

    def seconds(self, operations: float, moved: float) -> tuple[float, float]:
        """Return the seconds of so many operations, and of so many bytes."""
        return operations / self.operations, moved / self.bandwidth

    def limit(self, operations: float, moved: float) -> str:
        """Return what binds: "operations" or "bytes"."""
        compute, memory = self.seconds(operations, moved)
        return "bytes" if memory > compute else "operations"

    @classmethod
    def parse(cls, text: str) -> Machine:
        """Read "GFLOP/s,GB/s", such as "989000,3350" for an H100 in bfloat16."""
        try:
            operations, bandwidth = (float(x) * 1e9 for x in text.split(","))
        except ValueError:
            operations = bandwidth = 0.0
        if not (0 < operations < float("inf") and 0 < bandwidth < float("inf")):
            raise OptionError(
                f"machine {text!r}: give its peak rates as GFLOP/s,GB/s, for example 989000,3350"
            )
        return cls(operations, bandwidth, "given")

    @classmethod
    def measured(cls, device: torch.device | str, dtype: torch.dtype) -> Machine:
        """Time a product of matrices and a copy of memory on this device."""
        side, size = 1024, 2**25
        a = torch.randn(side, side, device=device).to(dtype)
        source = torch.zeros(size, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        product = _fastest(lambda: a @ a, device)
        copied = _fastest(lambda: target.copy_(source), device)
        return cls(2 * side**3 / product, 2 * size / copied, f"measured on {device}")


def _fastest(run: Any, device: torch.device | str) -> float:
    spent = []
    for _ in range(_TRIES + 1):  # the first also allocates
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)
        begin = time.perf_counter()
        run()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)
        spent.append(time.perf_counter() - begin)
    return max(min(spent[1:]), 1e-9)


@takes_model
def roofline(
    model: Model,
    prompts: Any,
    metrics: Sequence[str | BoundAnalysis] = (),
    *,
    engine: str = "auto",
    machine: Machine | str | None = None,
) -> ResultRows:
    """Count the operations and bytes of scoring, and find which limit of a machine binds.

    Parameters: two operations per weight of the linear maps and token, and every weight read once.
    Attention: both products and the softmax over the visible keys, and queries, keys, values and
    outputs moved once. Statistics: a few operations per visible key for each, and no bytes if they
    are fused or streamed; the stored engine writes and reads the pattern. One more token
    ("decode") reads all weights and the keys and values of the longest prompt.

    Args:
        model: The model.
        prompts: Texts, ids or `Prompts`.
        metrics: Metrics of attention to count; others are left out.
        engine: As for `interp.score`.
        machine: Peak rates, as a `Machine` or "GFLOP/s,GB/s"; measured on the model's device by
            default, in a fraction of a second.

    Returns:
        One row per stage ("pass": the prompts once; "decode": one more token of the longest prompt)
        and part ("parameters", "attention" or "statistics"): score (seconds, at least),
        operations, bytes (moved once) and limit, which of the two binds. Facts by stage: totals
        (operations and bytes), seconds, binds (what binds the stage as a whole) and shares (of
        each part in the operations); and tokens, the tokens of the pass. Object: machine.

    Raises:
        PromptError: the model does not read tokens.
        OptionError: the machine is not two positive rates.

    Unit: operations, bytes, and seconds as a lower bound.

    Cost: no forward pass.

    Null: none; the counts are exact for dense layers.

    Not for: predicting seconds: caches, kernels and the host add to the bound. Experts that are not
    chosen count as if they were read, and windows as if all earlier keys were visible.

    Reference: Williams et al. 2009, "Roofline: An Insightful Visual Performance Model"; attention
    against parameters, Sadhukhan et al. 2025, "Kinetics: Rethinking Test-Time Scaling Laws" (arXiv
    2506.05333).
    """
    if not model.takes_text:
        raise PromptError(f"{model.name} does not read tokens; a roofline counts tokens")
    tokenized = Prompts.of(prompts, model)
    rates = Machine.parse(machine) if isinstance(machine, str) else machine
    rates = rates or Machine.measured(model.device, model.dtype)
    asked = [bound(x) if isinstance(x, str) else x for x in metrics]
    stored = choose_engine(model, tokenized, 1, engine, may_fuse=True) == "stored"
    lengths = [len(ids) for ids in tokenized.ids]
    rows = {("pass", p): pass_cost(model, lengths, asked, stored, p) for p in PARTS}
    rows |= {("decode", p): _decode(model, max(lengths), p) for p in PARTS[:2]}
    provenance = result_provenance(model, "interp.heads.roofline", tokenized, engine=engine)
    counts = [(float(done), float(moved)) for done, moved in rows.values()]
    columns = {
        "stage": [stage for stage, _ in rows],
        "part": [part for _, part in rows],
        "score": [max(rates.seconds(*x)) for x in counts],
        "operations": [x[0] for x in counts],
        "bytes": [x[1] for x in counts],
        "limit": [rates.limit(*x) for x in counts],
    }
    of = {
        stage: {p: x for (s, p), x in zip(rows, counts, strict=True) if s == stage}
        for stage, _ in rows
    }
    totals = {
        s: (sum(x for x, _ in p.values()), sum(x for _, x in p.values())) for s, p in of.items()
    }
    facts = {
        "metric": "roofline",
        "unit": "seconds, at least",
        "tokens": sum(lengths),
        "totals": totals,
        "seconds": {s: max(rates.seconds(*x)) for s, x in totals.items()},
        "binds": {s: rates.limit(*x) for s, x in totals.items()},
        "shares": {
            s: {p: x[0] / totals[s][0] for p, x in parts.items()} for s, parts in of.items()
        },
    }
    why = "the counts are exact, and the same for all prompts of one length"
    return ResultRows(
        "Roofline",
        columns,
        ("stage", "part"),
        provenance,
        facts,
        why_no_per_prompt=why,
        objects={"machine": rates},
    )


class SizedModel(Protocol):
    """Model whose sizes are known, with weights or without."""

    @property
    def module(self) -> Any:
        """Module, whose weights may be on the meta device."""
        ...

    @property
    def sites(self) -> Sequence[Site]:
        """Attention layers."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the weights."""
        ...


PARTS = ("parameters", "attention", "statistics")


def linear_weights(model: SizedModel) -> int:
    """Return the number of weights of the linear maps, the unembedding included."""
    return sum(
        m.weight.numel()  # type: ignore[union-attr]
        for m in model.module.modules()
        if isinstance(getattr(m, "weight", None), torch.Tensor)
        and not isinstance(m, nn.Embedding)
        and m.weight.dim() == 2  # type: ignore[union-attr]
    )


def pass_cost(
    model: SizedModel,
    lengths: Sequence[int],
    asked: Sequence[BoundAnalysis],
    stored: bool,
    part: str,
) -> tuple[float, float]:
    """Return the operations and bytes of one part of a run over prompts of these lengths."""
    size = model.dtype.itemsize
    if part == "parameters":
        weights = linear_weights(model)
        return 2.0 * weights * sum(lengths), float(weights * size)
    done = moved = 0.0
    per_entry = sum(_per_entry(b) for b in asked)
    for site in model.sites:
        for n in lengths:
            entries = site.n_heads * (n * (n + 1) / 2 if site.causal else float(n * n))
            if part == "statistics":
                done += entries * per_entry
                moved += stored * entries * 4 * (1 + len(asked))  # written once, read by each
                continue
            done += entries * (2 * site.d_head + 2 * site.d_v + SOFTMAX)
            heads = site.n_heads + site.n_kv_heads
            moved += n * heads * (site.d_head + site.d_v) * size
    return done, moved


def _decode(model: Model, length: int, part: str) -> tuple[float, float]:
    """Return the cost of one more token after a prompt."""
    size = model.dtype.itemsize
    if part == "parameters":
        weights = linear_weights(model)
        return 2.0 * weights, float(weights * size)
    done = moved = 0.0
    for site in model.sites:
        done += site.n_heads * length * (2 * site.d_head + 2 * site.d_v + SOFTMAX)
        moved += site.n_kv_heads * length * (site.d_head + site.d_v) * size
    return done, moved


def _per_entry(metric: BoundAnalysis) -> int:
    if metric.analysis.kind == "measurement":
        return MEASURE
    if not metric.patterned():
        return 0
    return sum(PER_ENTRY.get(type(r).__name__, OTHERS) for r in metric.reductions())


def roofline_summary(found: ResultRows) -> str:
    """Return the operations and bytes of a pass, and the limit that binds."""
    done, moved = found.totals["pass"]
    return (
        f"Roofline({found.tokens} tokens: {done:.3g} operations, {moved:.3g} bytes, limited by "
        f"{found.binds['pass']}, at least {found.seconds['pass']:.3g} s)"
    )


present("Roofline", summary=roofline_summary)
