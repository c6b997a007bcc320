"""Attentions at which a metric is defined, and the reasons where it is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from interp.heads.declaration import BoundAnalysis
from interp.heads.segment_targets import lacking_segments
from interp.model.locate.sites import Site
from interp_kernels.reductions import Distance

if TYPE_CHECKING:
    from interp.model.model import Model


def why_left_out(bound: BoundAnalysis, site: Site, model: Model) -> str | None:
    """Return why a metric is not defined at a site, or None where it is.

    Positions of queries and keys can be compared only within one sequence, so distances and
    detectors leave out cross attention, unless a detector is declared for two sequences. Predicates
    on tokens need a model with token input, and those on segments a stack that can have these.
    """
    if bound.analysis.kind == "measurement":
        from interp.heads.measuring import lacking

        lacks = lacking(bound.analysis.requires, site, model)
        return None if lacks is None else f"it needs {lacks}"
    if bound.analysis.reads_tokens and (site.of_tower or not model.takes_text):
        return "its targets depend on tokens, which the stack does not read"
    sequences = bound.analysis.sequences if bound.analysis.kind == "detector" else "any"
    if bound.analysis.reads_segments and lacking_segments(bound, model, site) is not None:
        return "it names segments that the stack does not have"
    if site.stack != "cross":
        return None if sequences != "two" else "it is about queries and keys of two sequences"
    if sequences == "one":
        return "it compares positions of queries and keys, which are of different sequences"
    far = any(isinstance(r, Distance) for r in bound.reductions())
    return "it is a distance, and queries and keys are of different sequences" if far else None


def left_out_cross(bound: BoundAnalysis, sites: Iterable[Site], model: Model) -> str:
    """State in one sentence why cross attention was not scored; empty where it was."""
    cross = [site for site in sites if site.stack == "cross"]
    why = next((w for site in cross if (w := why_left_out(bound, site, model))), None)
    return "" if why is None else f"Cross attention was left out: {why}."
