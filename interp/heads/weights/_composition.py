"""Composition scores: overlap of one head's output with a later head's input, for every pair."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.result_rows import ResultRows
from interp.model.calls.sites import circuit_sites
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.model.calls.sites import Site
    from interp.model.locate.linear import LowRank
    from interp.model.model import Model

ComposedInput = Literal["q", "k", "v"]
# random heads per side of a baseline; its standard error is then about 1 % of its value
_SAMPLES = 12


class Composed(NamedTuple):
    """Scores of a pair of attentions, and the mean score of random matrices of these shapes."""

    score: Float[Tensor, "head later_head"]
    baseline: float


@takes_model
def composition_scores(model: Model, kind: ComposedInput) -> ResultRows:
    """Compute Q-, K- or V-composition of every pair of heads in sequence.

    The score of heads 1 and 2 is `|A B| / (|A| |B|)` in Frobenius norms, with A the OV circuit of
    head 1 and B a circuit of head 2: its QK circuit from the query's side ("q"), from the key's
    side ("k"), or its OV circuit ("v"). Weights are folded (see `interp.model.locate.weights`).

    Returns:
        One row per pair of heads that can compose: stack and writes, the earlier head; later_stack
        and reads, the later one; score, above the baseline; without_subtraction, the score itself;
        baseline, the mean score of random matrices of the same shapes.

    Raises:
        OptionError: the kind does not exist.
        UnreadableAttention: the circuits are not fixed matrices, or no attention follows another.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    matrices = composition_matrices(model, kind)
    rows = [
        {
            "stack": a.stack,
            "writes": str(Head(a.layer, i)),
            "later_stack": b.stack,
            "reads": str(Head(b.layer, j)),
            "score": raw - baseline,
            "null": 0.0,
            "without_subtraction": raw,
            "baseline": baseline,
        }
        for (a, b), (matrix, baseline) in matrices.items()
        for i, row in enumerate(matrix.tolist())
        for j, raw in enumerate(row)
    ]
    return ResultRows(
        "Compositions",
        rows,
        ("stack", "writes", "later_stack", "reads"),
        result_provenance(model, "interp.heads.weights.composition_scores", kind=kind),
        {"metric": f"{kind}_composition", "unit": "above random matrices"},
        why_no_per_prompt="the scores are computed from weights, without prompts",
        shown_by="score",
    )


def composition_matrices(model: Model, kind: ComposedInput) -> dict[tuple[Site, Site], Composed]:
    """Return the scores of every pair of attentions in sequence, with their baseline."""
    from interp.model.locate.weights import composed_pairs

    if kind not in ("q", "k", "v"):
        raise OptionError(f"composition kind {kind!r} does not exist; known: q, k, v")
    written: dict[Site, Tensor] = {}
    read: dict[Site, Tensor] = {}
    matrices = {}
    for earlier, later in composed_pairs(model, kind):
        if earlier not in written:
            written[earlier] = _unit(model.weights_of(earlier).OV.rows_reduced())
        if later not in read:
            read[later] = _unit(_reader(model, later, kind).columns_reduced())
        a, b = written[earlier], read[later]
        if a.shape[2] != b.shape[1]:
            continue  # a layer between them changes the width of the residual stream (Swin)
        baseline = random_composition(a.shape[2], a.shape[1], b.shape[2])
        matrices[earlier, later] = Composed(_norms(a, b), baseline)
    return matrices


def strongest(model: Model, kind: ComposedInput, subtract_baseline: bool) -> dict[Site, Tensor]:
    """Return each head's largest score with an earlier head; 0 if there is none."""
    import torch

    best: dict[Site, Tensor] = {}
    for (_, later), (score, baseline) in composition_matrices(model, kind).items():
        here = (score - baseline if subtract_baseline else score).amax(0)
        best[later] = torch.maximum(best[later], here) if later in best else here
    zeros = {s: torch.zeros(s.n_heads, dtype=torch.float64) for s in circuit_sites(model.sites)}
    return zeros | best


def _reader(model: Model, site: Site, kind: ComposedInput) -> LowRank:
    weights = model.weights_of(site)
    if kind == "v":
        return weights.OV
    return weights.QK if kind == "q" else weights.QK.T


def _unit(x: Float[Tensor, "head a b"]) -> Float[Tensor, "head a b"]:
    """Normalise to norm one; a head with zero weights stays zero."""
    return x / x.flatten(1).norm(dim=1).clamp_min(1e-30)[:, None, None]


def _norms(
    a: Float[Tensor, "head rank d_model"], b: Float[Tensor, "later_head d_model rank"]
) -> Float[Tensor, "head later_head"]:
    both = a.flatten(0, 1) @ b.transpose(0, 1).flatten(1)
    blocks = both.reshape(a.shape[0], a.shape[1], b.shape[0], b.shape[2])
    return blocks.double().square().sum((1, 3)).sqrt().cpu()


@lru_cache(maxsize=256)
def random_composition(d_model: int, rank: int, later_rank: int) -> float:
    """Return the mean score of products of Gaussian matrices: about `d_model ** -0.5`."""
    import torch

    from interp.model.locate.linear import LowRank

    generator = torch.Generator().manual_seed(0)

    def draw(n: int, m: int) -> Tensor:
        return torch.randn(_SAMPLES, n, m, generator=generator)

    first = LowRank(draw(d_model, rank), draw(rank, d_model))
    second = LowRank(draw(d_model, later_rank), draw(later_rank, d_model))
    return float(_norms(_unit(first.rows_reduced()), _unit(second.columns_reduced())).mean())
