"""From signals to a graph: from the heads that act on the task back to what they look at."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from interp.causal.gradient import frozen
from interp.circuit.linear_scores import CONSTANT, LinearScores
from interp.circuit.query_key_signals import Signal, Tracer
from interp.circuit.stream_hooks import replace_first
from interp.errors import OptionError, UnreadableAttention
from interp.model.calls import precise
from interp.model.inference import inference
from interp.model.sites import first_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float
    from torch import Tensor, nn

    from interp.circuit.contrast import Batch
    from interp.model.model import Model
    from interp.model.sites import Site

Place = tuple[str, int]  # a head and the position where it writes


@dataclass(eq=False)
class Trace:
    """What one prompt gave: credit of nodes and edges, which adds up from each side to the seeds'.

    Args:
        nodes: credit by name. edges: credit by (writer, reader).
        signals: those that were followed.
    """

    nodes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    edges: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    signals: list[Signal] = field(default_factory=list)


def seeds(
    model: Model, batch: Batch, value: Any, scores: LinearScores, reach: float, only: set[str]
) -> list[dict[Place, float]]:
    """By prompt: heads and positions with the largest direct effects, and their part of these.

    The direct effect is the task's gradient by the last stream, times how what the head writes
    there differs between the clean and the corrupted prompt. The smallest set is taken that holds
    `reach` of all that help.

    Raises:
        OptionError: no head of those asked for acts on the task directly.
    """
    slope = _slope_at_end(model, batch, value)
    other = LinearScores(model, batch.corrupted, turned=scores.turns)
    delta = scores.written - other.written
    effect = torch.einsum("bpwm,bpm->bpw", delta, slope).double().cpu().numpy()
    heads = [i for i, n in enumerate(scores.writers) if n in only or (not only and n[0] == "L")]
    found = []
    for row in effect:
        helping = [(row[p, i], i, p) for p in range(len(row)) for i in heads if row[p, i] > 0]
        helping.sort(key=lambda x: (-x[0], x[1], x[2]))
        whole, kept = sum(x for x, _, _ in helping), {}
        so_far = 0.0
        for x, i, p in helping:
            if so_far >= reach * whole:
                break
            so_far += x
            kept[scores.writers[i], p] = x
        found.append({place: x / so_far for place, x in kept.items()})
    if not any(found):
        raise OptionError(
            f"{model.name}: none of {', '.join(sorted(only)) or 'its heads'} acts on the task "
            "directly, so there is nowhere to start; name other seeds"
        )
    return found


def _slope_at_end(
    model: Model, batch: Batch, value: Callable[[Tensor], Tensor]
) -> Float[Tensor, "batch pos d_model"]:
    """The gradient of the task by the stream that leaves the last block."""
    kept: list[Tensor] = []

    def hook(module: nn.Module, args: tuple, output: Any) -> Any:
        x = first_tensor(output)
        assert x is not None
        kept.append(x.detach().clone().requires_grad_(True))
        return replace_first(output, x, kept[-1])

    where = model.sites[-1].streams.get("resid_post")
    if where is None:
        raise UnreadableAttention(
            f"{model.name}: no stream was found to leave its last block, so no direct effect"
        )
    handle = model.module.get_submodule(where.module).register_forward_hook(hook)
    try:
        with torch.enable_grad(), frozen(model.module), inference(model.module):
            logits = model.run(model.inputs(batch.clean))
            (slope,) = torch.autograd.grad(value(logits).sum(), kept[-1])
    finally:
        handle.remove()
    return precise(slope)


def trace(
    tracer: Tracer, row: int, start: dict[Place, float], *, reach: float, known: dict[Any, Any]
) -> Trace:
    """Follow the credit of the seeds of one prompt from head to head, down to the embeddings.

    A head that fires passes its credit on to those who wrote what its signal reads, half of it to
    the query's side and half to the key's. Of each side the smallest set of writers is kept that
    holds `reach` of what they give, each with its part.
    """
    found, model = Trace(), tracer.scores.model
    credit: dict[Place, float] = defaultdict(float, start)
    for (name, _), x in start.items():
        found.edges[name, "logits"] += x
    for site in reversed(model.sites):
        fired = known.setdefault(site, _by_place(tracer, site))
        for head in range(site.n_heads):
            name = f"L{site.layer}H{head}"
            places = [p for n, p in credit if n == name]
            for query in sorted(places):
                mine = credit[name, query]
                found.nodes[name] += mine
                signals = _signals(tracer, site, row, head, query, fired, known)
                for signal in signals:
                    found.signals.append(signal)
                    _pass_on(found, credit, signal, mine / len(signals), reach)
    return found


def _by_place(tracer: Tracer, site: Site) -> dict[tuple[int, int, int], list[int]]:
    fired = defaultdict(list)
    for row, head, query, key in tracer.firings(site).tolist():
        fired[row, head, query].append(key)
    return fired


def _signals(
    tracer: Tracer, site: Site, row: int, head: int, query: int, fired: Any, known: dict[Any, Any]
) -> list[Signal]:
    place = site, row, head, query
    if place not in known:
        found = [tracer.signal(site, row, head, query, key) for key in fired[row, head, query]]
        known[place] = [s for s in found if s is not None]
    return known[place]


def _pass_on(
    found: Trace, credit: dict[Place, float], signal: Signal, mine: float, reach: float
) -> None:
    for side, parts, pos in (
        ("q", signal.by_query, signal.query),
        ("k", signal.by_key, signal.key),
    ):
        names = (*signal.writers, CONSTANT)
        helping = sorted(
            ((x, i) for i, x in enumerate(parts) if x > 0), key=lambda x: (-x[0], x[1])
        )
        whole, so_far = sum(x for x, _ in helping), 0.0
        for x, i in helping:
            if so_far >= reach * whole:
                break
            so_far += x
            if names[i] == CONSTANT:
                continue  # biases belong to nobody
            part = 0.5 * mine * float(x / whole)
            found.edges[names[i], f"{signal.name}.{side}"] += part
            if names[i][0] == "L":
                credit[names[i], pos] += part
            else:
                found.nodes[names[i]] += part
