"""Attentions at which a metric is defined, and the reasons where it is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from interp.heads.declaration import BoundAnalysis
from interp.heads.segment_targets import lacking_segments
from interp.model.calls.sites import APART, POOLING, Site
from interp_kernels.reductions import Distance

if TYPE_CHECKING:
    from interp.model.model import Model


def why_left_out(bound: BoundAnalysis, site: Site, model: Model) -> str | None:
    """Return why a metric is not defined at a site, or None where it is.

    Positions of queries and keys can be compared only within one sequence, so distances and
    detectors leave out cross attention and a pooling attention, whose query is a parameter, unless
    a detector is declared for two sequences. Predicates on tokens need a model with token input,
    and those on segments a stack that can have these.
    """
    if bound.analysis.kind == "weights":
        return _no_circuits(site)
    if bound.analysis.kind == "measurement":
        from interp.heads.measuring import lacking

        lacks = lacking(bound.analysis.requires, site, model)
        return None if lacks is None else f"it needs {lacks}"
    if bound.analysis.reads_tokens and (site.of_tower or not model.takes_text):
        return "its targets depend on tokens, which the stack does not read"
    sequences = bound.analysis.sequences if bound.analysis.kind == "detector" else "any"
    if bound.analysis.reads_segments and (why := _no_segments(bound, site, model)):
        return why
    if site.stack != "cross" and sequences == "two":
        return "it is about queries and keys of two sequences"
    return None if site.stack not in APART else _apart(bound, site, sequences)


def _no_segments(bound: BoundAnalysis, site: Site, model: Model) -> str | None:
    if site.stack == POOLING:
        return "the query of a pooling attention is a parameter without a segment"
    lacks = lacking_segments(bound, model, site)
    return None if lacks is None else "it names segments that the stack does not have"


def _no_circuits(site: Site) -> str | None:
    learned = "its query is a parameter, so it has no circuits of queries and keys"
    return learned if site.stack == POOLING else None


def _apart(bound: BoundAnalysis, site: Site, sequences: str) -> str | None:
    """Return why positions of queries and keys cannot be compared as a metric does, or None."""
    apart = "queries and keys are of different sequences"
    if site.stack == POOLING:
        apart = "the query of a pooling attention is a parameter without a position"
    if sequences == "one":
        return f"it compares positions of queries and keys, and {apart}"
    far = any(isinstance(r, Distance) for r in bound.reductions())
    return f"it is a distance, and {apart}" if far else None


def left_out_of_two(bound: BoundAnalysis, sites: Iterable[Site], model: Model) -> str:
    """State why cross attention and pooling attention were not scored; empty where they were."""
    sentences = []
    for stack, name in (("cross", "Cross attention"), (POOLING, "Pooling attention")):
        mine = [site for site in sites if site.stack == stack]
        why = next((w for site in mine if (w := why_left_out(bound, site, model))), None)
        sentences += [] if why is None else [f"{name} was left out: {why}."]
    return " ".join(sentences)
