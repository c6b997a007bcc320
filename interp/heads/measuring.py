"""Measures of attention layers on prompts, in one forward pass, one layer at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.core.errors import InterpError, PromptError
from interp.core.prompts import Prompts
from interp.heads.declaration import BoundAnalysis
from interp.heads.layer import LayerCall
from interp.heads.one_call import equal_lengths
from interp.model.calls.call import Call, ComputedCall
from interp.model.calls.sites import APART, Site, softmax_sites
from interp.model.each_batch import each_batch
from interp.model.hooks.score_terms import ScoreTerms, contents
from interp.model.locate.head_outputs import read_for_run, writing_weights
from interp.model.segments import read_inputs, segment_labels
from interp.model.single_prompts import pictured, single_prompts
from interp.model.views import softmax_view

if TYPE_CHECKING:
    from interp.model.locate.weights import HeadWeights
    from interp.model.model import Model


def lacking(requires: Sequence[str], site: Site, model: Model) -> str | None:
    """Return the property that an attention lacks for a measure, or None."""
    before = [
        s for s in softmax_sites(model.sites) if s.stack == site.stack and s.layer < site.layer
    ]
    has = {
        "qk": site.has_qk,
        "self": site.stack not in APART,
        "cross": site.stack == "cross",
        "heads": site.n_heads > 1,
        "previous": bool(before),
        "ov": not site.gated,
        "causal": site.causal,
        # queries of cross attention are of another sequence than its keys
        "segments": site.stack != "cross",
        "terms": not site.recorded,
        "turns": site.has_qk and len({s.stack for s in model.sites}) == 1 and model.takes_text,
    }
    descriptions = {
        "qk": "scores from one product of queries and keys",
        "self": "queries and keys of the same tokens",
        "cross": "queries and keys of two sequences",
        "heads": "several heads in a layer",
        "previous": "an attention before it in the same stack",
        "ov": "an output matrix without gates before it",
        "causal": "causal attention",
        "segments": "queries and keys of the same sequence",
        "terms": "scores that follow from products of queries and keys, and biases",
        "turns": "one stack of tokens with scores from one product of queries and keys",
    }
    if site.kind != "softmax":
        return "softmax attention"
    return next((descriptions[x] for x in requires if not has[x]), None)


def why_unmeasurable(model: Model, metric: BoundAnalysis) -> str | None:
    """Return the reason why a measure cannot be computed on any attention of a model, or None."""
    requires = metric.analysis.requires
    lacks = [lacking(requires, site, model) for site in softmax_sites(model.sites) or model.sites]
    if all(lacks):
        return f"{metric.label} needs {lacks[0]}, which {model.name} has nowhere"
    try:
        model = softmax_view(model)
        if "ov" in requires:
            _written(model)
        if "turns" in requires:
            _turns(model, 4)
    except InterpError as error:
        return f"{metric.label}: {error}"
    return None


def measure_layers(
    model: Model,
    prompts: Prompts | Mapping[str, Tensor],
    metrics: Sequence[BoundAnalysis],
    batch_size: int,
    engine: str,
) -> dict[str, dict[Site, np.ndarray]]:
    """Compute measures on every attention of a model, in one forward pass per batch.

    Prompts of one length are run together, so that none is padded. Layers that are not one softmax
    are left out.
    """
    model = softmax_view(model)
    asked = {
        s: [m for m in metrics if not lacking(m.analysis.requires, s, model)] for s in model.sites
    }
    scores: dict[str, dict[Site, np.ndarray]] = {m.label: {} for m in metrics}
    needs = {x for m in metrics for x in m.analysis.requires}
    whole = prompts if isinstance(prompts, Prompts) else None
    size = len(whole) if whole else len(next(iter(prompts.values())))  # type: ignore[union-attr]
    alone = [] if whole or not pictured(model, prompts) else single_prompts(model, prompts)  # type: ignore[arg-type]
    size = len(alone) or size
    written = _written(model) if "ov" in needs else {}
    longest = max(map(len, whole.ids)) if whole else 0
    turning = _turns(model, longest) if "turns" in needs and whole else {}
    parts = equal_lengths(whole, batch_size) if whole else [(list(range(size)), prompts)]

    def measure(part: tuple[list[int], Any]) -> None:
        which, batch = part
        last: dict[str, LayerCall] = {}
        inputs = model.inputs(batch)  # type: ignore[arg-type]
        terms = ScoreTerms(contents(inputs)) if "terms" in needs else None
        looked_at = read_inputs(batch) if "segments" in needs else inputs

        def visit(site: Site, call: Call, real: Tensor) -> None:
            model.require_finite(call, site)
            if not bool(real.all()):
                raise PromptError(
                    f"{model.name}: the given tensors hold padding, which measures of layers do "
                    f"not read; give texts, ids or Prompts"
                )
            before = last.get(site.stack)
            if before is not None and before.call.z.shape[:3:2] != call.z.shape[:3:2]:
                before = None
            turns = {p: turning[site, p] for p in ("q", "k") if (site, p) in turning}
            layer = LayerCall(site, call, engine, before, written.get(site), turns)
            if "segments" in needs:
                labels = segment_labels(model, looked_at, site, call.v.shape[0], call.v.shape[2])
                layer.segments = labels.to(call.v.device)
            if terms is not None and isinstance(call, ComputedCall):
                layer.terms = terms.of(call, site.name)
            for metric in asked[site]:
                values = metric.measured(layer).detach().cpu()
                if len(values) != len(which):  # windows of one image are parts of one item
                    values = values.unflatten(0, (len(which), -1)).nanmean(1)
                array = scores[metric.label].setdefault(site, np.full((size, site.n_heads), np.nan))
                array[which] = values.numpy()
            last[site.stack] = LayerCall(site, call, engine)

        with terms or nullcontext():
            model.read(inputs, visit, last=1, streamed=terms is not None or engine != "stored")

    todo = [([i], each) for i, each in enumerate(alone)] or parts
    each_batch(model, todo, measure, lambda part: len(part[0]) * longest)
    return scores


def _written(model: Model) -> dict[Site, HeadWeights]:
    """Return the weights by which heads write to the stream, of attentions without gates."""
    by_site = {s: writing_weights(model, s) for s in model.sites if not s.gated}
    for weights in by_site.values():
        read_for_run(weights)
    return by_site


def _turns(model: Model, tokens: int) -> dict[tuple[Site, str], Tensor]:
    """Return the maps from queries and keys back to the projections at the first positions."""
    from interp.model.locate.turning import turns

    maps = turns(model, model.inputs(Prompts(((0,) * tokens,))))
    return {at: torch.linalg.inv(turn.double()) for at, turn in maps.items()}
