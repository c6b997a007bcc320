"""Rows of a search of variables: intervals, controls and what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool

from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.variables.interchanges import PlacedInterchange, base_hashes
from interp.circuits.variables.places import HeldPlace, InterchangeRuns, Subspace
from interp.core.intervals import share_interval
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.statistics import RatioBootstrap, holm, sign_flip_p
from interp.model.content import model_provenance

ALPHA = 0.05
LEAST_TEMPLATES = 4  # of which whole templates are drawn, fitted and judged
PROBABILITIES = (0.005, 0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975, 0.995)
"""Probabilities of the ends of intervals that are kept."""
N_ENDS, LOW, HIGH = len(PROBABILITIES), 1, -2


@dataclass(frozen=True, eq=False)
class FoundAt:
    """Result of the search at one place, on the judged pairs."""

    variable: str
    place: HeldPlace
    moved: float
    whole: float
    subspace: Subspace | None = None
    hits: Bool[np.ndarray, " pair"] | None = None
    varying: Bool[np.ndarray, " pair"] | None = None
    random: float = float("nan")
    exchanged: float = float("nan")
    isolate: float = float("nan")
    features: tuple[int, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return all but variable and place as numbers and arrays."""
        rest = {x: y for x, y in vars(self).items() if x not in ("variable", "place", "subspace")}
        space = None if self.subspace is None else [x.numpy() for x in self.subspace.basis]
        return rest | {"basis": space}

    @classmethod
    def of_plain(cls, variable: str, place: HeldPlace, found: Mapping[str, Any]) -> FoundAt:
        """Make it of what `plain` returned."""
        given = dict(found)
        space = given.pop("basis")
        basis = None if space is None else tuple(torch.from_numpy(x) for x in space)
        return cls(variable, place, subspace=None if basis is None else Subspace.of(basis), **given)


def frequent_share(runs: InterchangeRuns) -> float:
    """Return the share of the most frequent answer."""
    answers = [row.answer for row in runs.rows]
    return max(answers.count(x) for x in set(answers)) / len(answers)


def variable_rows(
    graph: ResidualGraph,
    found: Sequence[FoundAt],
    judge: Mapping[str, InterchangeRuns],
    fitted: Mapping[str, int],
    pairs: Sequence[PlacedInterchange],
    skipped: Mapping[str, int],
    options: Mapping[str, Any],
) -> ResultRows:
    """Judge what was found, and return a row per place."""
    lines, chance, quantiles = [], [], []
    for one in found:
        runs = judge[one.variable]
        frequent = frequent_share(runs)
        hits = np.zeros(len(runs.rows), bool) if one.hits is None else one.hits
        score = float(hits.mean()) if one.subspace is not None else float("nan")
        ends = _quantiles(hits, runs) if one.subspace is not None else [float("nan")] * N_ENDS
        quantiles.append(ends)
        piece = one.place.pieces[0]
        site = graph.layers[piece.order].site
        single = len(one.place.pieces) == 1
        lines.append(
            {
                "variable": one.variable,
                "place": one.place.name,
                "stack": site.stack,
                "layer": site.layer if single else -1,
                "head": int(one.place.name.partition("H")[2])
                if single and "H" in one.place.name
                else -1,
                "position": "all" if one.place.position is None else str(one.place.position),
                "k": 0 if one.subspace is None else one.subspace.n_directions,
                "score": score,
                "low": ends[LOW],
                "high": ends[HIGH],
                "whole": one.whole,
                "random": one.random,
                "exchanged": one.exchanged,
                "frequent": frequent,
                "varying": float("nan") if one.varying is None else float(one.varying.mean()),
                "isolate": one.isolate,
                "disentangle": (score + one.isolate) / 2,
                "n": len(hits),
                "fitted_on": fitted[one.variable],
                "heads": _chosen(graph, one) if options["method"] == "heads" else "",
                "features": ", ".join(map(str, one.features)),
            }
        )
        chance.append(_chance(one, frequent, len(hits)))
    ps = [
        [1.0 if x is None else _p(x, c, judge[one.variable]) for x in given]
        for one, c in zip(found, chance, strict=True)
        for given in [(one.hits, one.varying)]
    ]
    tried = np.array([one.subspace is not None for one in found])
    corrected = np.array([holm(np.where(tried, p, np.nan)) for p in np.array(ps).T])
    for at, (line, one) in enumerate(zip(lines, found, strict=True)):
        line["p"] = float(corrected[0, at])
        if one.subspace is None:
            line["finding"] = "answers stay"
        elif not corrected[0, at] < ALPHA:
            line["finding"] = "not shown"
        else:
            line["finding"] = "found" if corrected[1, at] < ALPHA else "dormant"
    prompts = Prompts(tuple(row.base for row in pairs), "interchanges")
    provenance = model_provenance(graph.model) | {
        "made_by": "interp.circuits.find_variables",
        "prompts_hash": prompts.hash,
        "pairs": len(pairs),
        "options": dict(options),
    }
    return ResultRows(
        "Variables",
        lines,
        ("variable", "place", "position"),
        provenance,
        {
            "metric": "interchange accuracy",
            "unit": "share of pairs",
            "skipped": dict(skipped),
            "base_prompts": sorted({*base_hashes(pairs)}),
            "method": options["method"],
            "probabilities": [*PROBABILITIES],
        },
        why_no_per_prompt="variables have pairs of their own",
        arrays={"directions": _directions(found), "quantiles": np.array(quantiles)},
    )


def _chance(one: FoundAt, frequent: float, n: int) -> float:
    """Return the largest control, each with one more success than it had."""
    controls = [x for x in (one.random, one.exchanged, frequent) if np.isfinite(x)]
    return min(1.0, (max(controls) * n + 1) / (n + 1))


def _p(hits: Bool[np.ndarray, " pair"], chance: float, runs: InterchangeRuns) -> float:
    from scipy.stats import binomtest

    templates = np.array([row.template for row in runs.rows])
    names = np.unique(templates)
    if len(names) < LEAST_TEMPLATES:
        return float(binomtest(int(hits.sum()), len(hits), chance, "greater").pvalue)
    means = np.array([hits[templates == name].mean() - chance for name in names])
    return sign_flip_p(means) if means.mean() > 0 else 1.0


def _quantiles(hits: Bool[np.ndarray, " pair"], runs: InterchangeRuns) -> list[float]:
    """Return ends of one-sided intervals of the share, at `PROBABILITIES`."""
    templates, at = np.unique([row.template for row in runs.rows], return_inverse=True)
    if len(templates) < LEAST_TEMPLATES:
        intervals = [
            share_interval(int(hits.sum()), len(hits), abs(1 - 2 * p)) for p in PROBABILITIES
        ]
        return [ends[p > 0.5] for ends, p in zip(intervals, PROBABILITIES, strict=True)]
    draws = RatioBootstrap(len(templates))
    parts = np.bincount(at, hits, len(templates)), np.bincount(at, minlength=len(templates))
    return [*draws.quantiles(*parts, PROBABILITIES)]


def _chosen(graph: ResidualGraph, one: FoundAt) -> str:
    if one.subspace is None:
        return ""
    names = [
        f"L{layer.site.layer}H{h}" for layer in graph.layers for h in range(layer.site.n_heads)
    ]
    held = zip(names, one.subspace.basis, strict=True)
    return ", ".join(name for name, basis in held if basis.shape[1])


def _directions(found: Sequence[FoundAt]) -> np.ndarray:
    bases: list[Any] = [
        None if one.subspace is None or len(one.place.pieces) > 1 else one.subspace.basis[0].numpy()
        for one in found
    ]
    shapes = [(0, 0) if x is None else x.shape for x in bases]
    out = np.full((len(found), *np.max([*shapes, (1, 1)], axis=0)), np.nan, np.float32)
    for at, basis in enumerate(bases):
        if basis is not None:
            out[at, : basis.shape[0], : basis.shape[1]] = basis
    return out


present(
    "Variables",
    summary="interp.report.printed.variables:variables_summary",
    text="interp.report.printed.variables:variables_text",
)
