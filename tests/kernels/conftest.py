"""Attention calls to try every backend on, and what "as exact as PyTorch" means.

A new backend is covered by its line in `interp_kernels.BACKENDS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from interp_kernels import (
    BACKENDS,
    Attention,
    Chosen,
    Diagonal,
    Distance,
    Entropy,
    KeySetMass,
    Largest,
    LeftProduct,
    LogSumExp,
    Mass,
    Moments,
    Output,
    PairMass,
    PooledMap,
    Received,
    ReceivedValueWeighted,
    Reduction,
    ResultNorm,
    RightProduct,
    Rows,
    ScoreMoments,
    SegmentMass,
    SegmentToSegment,
    Statistics,
    Targets,
    Tile,
    TopK,
    attention_statistics,
    gpu,
    reference,
)
from interp_kernels.backends import why_not
from interp_kernels.cpu import RARE


@pytest.fixture(params=[name for name in BACKENDS if name != "reference"])
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend that is held to the reference, where it can run."""
    reason = why_not(request.param)
    if reason is not None:
        pytest.skip(reason)
    if request.param == "triton" and not gpu.interpreted():
        pytest.skip("takes tensors on a GPU: test_gpu.py holds it to the definition there")
    return request.param


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Fresh memory holds NaN (or the largest whole number), so an element left unwritten shows."""
    assert torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def previous(query: Tensor, key: Tensor, tokens: Tensor) -> Tensor:
    return key == query - 1


def induction(query: Tensor, key: Tensor, tokens: Tensor) -> Tensor:
    return (key >= 1) & (key <= query) & (tokens[key - 1] == tokens[query])


def even(query: Tensor, key: Tensor, tokens: Tensor) -> Tensor:
    return key % 2 == 0


class Calls:
    """Random attention calls, each from the seed it is given."""

    def make(
        self,
        *,
        batch: int = 2,
        heads: tuple[int, int] = (4, 2),
        sizes: tuple[int, int] = (13, 13),
        widths: tuple[int, int] = (8, 6),
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        spread: float = 1.0,
        **masks: Any,
    ) -> Attention:
        draw = torch.Generator().manual_seed(seed)
        (head, kv), (query, key), (d, d_v) = heads, sizes, widths

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64)

        q, k = spread * normal(batch, head, query, d), spread * normal(batch, kv, key, d)
        v = normal(batch, kv, key, d_v)
        tokens = torch.randint(0, 5, (batch, max(query, key)), generator=draw)[:, :key]
        return Attention(
            q=q.to(dtype),
            k=k.to(dtype),
            v=v.to(dtype),
            tokens=tokens,
            **{"causal": True, **masks},
        )

    def masks(  # noqa: PLR0911, PLR0912 - a table
        self, kind: str, batch: int = 2, head: int = 4, sizes: tuple[int, int] = (13, 13)
    ) -> dict[str, Any]:
        """Everything that hides or shifts scores, by a short name."""
        draw = torch.Generator().manual_seed(7)
        query, key = sizes
        left = torch.arange(key) >= torch.tensor([[0], [key // 3]])[:batch]
        right = torch.arange(key) < torch.tensor([[key], [key - key // 3]])[:batch]
        lowest = torch.finfo(torch.float32).min
        behind = torch.arange(key) <= torch.arange(query)[:, None] + key - query
        match kind:
            case "none":
                return {"causal": False}
            case "causal":
                return {}
            case "window":
                return {"window": max(1, key // 4)}
            case "window alone":
                return {"causal": False, "window": 3}
            case "alibi":
                slope = torch.linspace(-0.5, -0.01, head)[:, None, None]
                return {"bias": slope * torch.arange(key - 1, -1, -1)}
            case "bias":
                return {"bias": torch.randn(head, query, key, generator=draw), "causal": False}
            case "huggingface":  # what eager_mask makes of left padding: all in one float mask
                seen = behind & left[:, None, None]
                return {"bias": torch.zeros(seen.shape).masked_fill(~seen, lowest), "causal": False}
            case "infinite":
                return {"bias": torch.zeros(query, key).masked_fill(~behind, -math.inf)}
            case "bool":
                seen = torch.rand(batch, 1, query, key, generator=draw) < 0.6
                return {"bias": seen, "causal": False}
            case "left padding":
                return {"key_padding": left}
            case "right padding":
                rows = right[:, -query:] if query <= key else None
                return {"key_padding": right, "query_padding": rows, "causal": False}
            case "softcap":
                return {"softcap": 1.5}
            case "sinks":
                return {"sinks": torch.randn(head, generator=draw) * 3}
            case "high sinks":
                return {"sinks": torch.full((head,), 200.0), "key_padding": left}
            case "no visible key":
                return {"bias": torch.zeros(query, key, dtype=torch.bool), "causal": False}
            case "offset":
                return {"offset": -2, "window": 4}  # the first two queries see nothing
            case "all at once":
                return {
                    "window": max(2, key // 2),
                    "bias": torch.randn(head, query, key, generator=draw),
                    "key_padding": left,
                    "softcap": 2.0,
                    "sinks": torch.zeros(head),
                    "scale": 0.7,
                }
        raise KeyError(kind)

    def everything(self, attention: Attention) -> list[Reduction]:
        """One of every reduction the call has, sized for it."""
        at, draw = attention.shape, torch.Generator().manual_seed(3)
        rows = tuple(sorted({0, at.query // 2, at.query - 1})) if at.query else ()
        keys = tuple(sorted({0, at.key - 1})) if at.key else ()
        key_labels = torch.randint(-1, 3, (at.batch, at.key), generator=draw)
        query_labels = torch.randint(-1, 2, (1, at.query), generator=draw)
        pairs = torch.tensor(
            [[0, 0, 0], [0, at.query, 0], [at.batch - 1, 3, 1], [0, 4, 2], [0, 4, 2]]
        )
        normal = torch.randn(at.head, at.d_v, 5, generator=draw)
        left = torch.randn(1, at.head, 2, at.query, generator=draw)
        right = torch.randn(at.batch, 1, at.key, 3, generator=draw)
        square = at.query <= at.key  # a predicate looks tokens up at query positions
        return [
            Output(),
            *([LogSumExp()] if attention.normalised else []),
            Entropy(),
            Largest(),
            TopK(3),
            *([Mass("induction", induction), Targets("count", induction)] if square else []),
            Mass("previous", previous),
            Mass("even", even),
            PairMass("pairs", pairs),
            KeySetMass("first", (0, 1)),
            SegmentMass(key_labels, 3),
            SegmentToSegment(query_labels, key_labels, 2, 3),
            Distance(),
            Moments(),
            ResultNorm(),
            ResultNorm(normal, name="written_norm"),
            Received(),
            ReceivedValueWeighted(),
            PooledMap(4),
            Rows(rows),
            Tile(rows, keys),
            Diagonal((0, 1, 3)),
            LeftProduct(left),
            RightProduct(right),
        ]


MASKS = [
    *("none", "causal", "window", "window alone", "alibi", "bias", "huggingface", "infinite"),
    *("bool", "left padding", "right padding", "softcap", "sinks", "high sinks"),
    *("no visible key", "offset", "all at once"),
]


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture(params=MASKS)
def mask(request: pytest.FixtureRequest) -> str:
    """The name of a mask."""
    return request.param


def tensors(value: object) -> tuple[Tensor, ...]:
    if isinstance(value, Chosen | ScoreMoments):
        return tuple(value)
    assert isinstance(value, Tensor)
    return (value,)


def worst(found: Tensor, exact: Tensor) -> float:
    """Largest error; infinities must agree."""
    assert not found.isnan().any(), "NaN"
    finite = exact.isfinite()
    assert torch.equal(found.double()[~finite], exact.double()[~finite]), "infinities differ"
    return (found.double() - exact.double())[finite].abs().max().item() if finite.any() else 0.0


class Conformance:
    """Holds results to the float64 definition."""

    def __init__(self, backend: str, run: Callable[..., Statistics] = attention_statistics):
        self.backend = backend
        self.run = run

    def __call__(
        self,
        attention: Attention,
        reductions: list[Reduction] | None = None,
        *,
        ulps: float = 8,
        **options: Any,
    ) -> Statistics:
        """Error at most twice that of plain PyTorch in float32 on the same inputs, plus some ulps.

        Inputs in 16 bits are held to the float32 figure too, as sums are kept in float32; only the
        output may be rounded once to the inputs' dtype.
        """
        reductions = Calls().everything(attention) if reductions is None else reductions
        here = self.run is attention_statistics  # and not on a device it is moved to
        if here and (reason := why_not(self.backend, attention, reductions)) is not None:
            pytest.skip(reason)  # what each backend refuses is pinned in its own tests
        found = self.run(attention, reductions, backend=self.backend, **options)
        common = [r for r in reductions if not isinstance(r, RARE)]
        answers = [(reductions, found)]
        if self.backend == "cpu" and len(common) < len(reductions):  # a pass of its own
            again = self.run(attention, common, backend=self.backend, **options)
            answers.append((common, again))
        exact = reference.statistics(attention, reductions, torch.float64)
        pattern = reference.pattern(attention, dtype=torch.float64)
        plain = reference.statistics(attention, reductions)
        eps = torch.finfo(attention.work_dtype).eps
        for r, given in [(r, values[r]) for asked, values in answers for r in asked]:
            value, truth, naive = tensors(given), tensors(exact[r.name]), tensors(plain[r.name])
            assert len(value) == len(truth), r.name
            if isinstance(r, Largest | TopK):  # a key is right when its weight is
                keys = value[1].view(*pattern.shape[:3], -1)
                held = (pattern.gather(-1, keys.clamp(min=0)) * (keys >= 0)).view(value[0].shape)
                value, truth, naive = (value[0], held), (truth[0],) * 2, (naive[0],) * 2
            for x, y, z in zip(value, truth, naive, strict=True):
                assert x.shape == y.shape, f"{r.name}: {list(x.shape)}, not {list(y.shape)}"
                size = y[y.isfinite()].abs().max().item() if y.isfinite().any() else 0
                allowed = 2 * worst(z, y) + ulps * eps * max(1, size)
                if isinstance(r, Output):
                    allowed += torch.finfo(x.dtype).eps / 2 * size
                error = worst(x, y)
                assert error <= allowed, f"{r.name}: error {error:.2e}, allowed {allowed:.2e}"
        return found


@pytest.fixture
def conforms(backend: str) -> Conformance:
    return Conformance(backend)
