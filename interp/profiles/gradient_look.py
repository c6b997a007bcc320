"""One forward and backward pass over a corpus: sums from which the effects of heads follow.

The sums are of products with the outputs z of heads, apart from those with their mean over the
corpus, which is known only at the end: an effect of z beyond its mean is the sum of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.causal.gate_derivatives import frozen
from interp.core.errors import NonFiniteError
from interp.core.prompts import Prompts
from interp.model.hooks.inference import inference
from interp.profiles.edges import vector_length
from interp.profiles.rows_read import AttentionRows, sink_of
from interp.profiles.steps import StoredArrays
from interp.profiles.writes import STREAMS, HeadWrites

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from interp.lens.finish import Finish
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.capture import ActivationCache
    from interp.profiles.first_look import Look
    from interp.profiles.predictions import PredictedText

_ROWS = 64  # positions whose probabilities are held at once


@dataclass(frozen=True, eq=False)
class GradientSums(StoredArrays):
    """Sums over the tokens of each window of one group.

    An entry is one number of the output z of one head; heads follow each other.

    Args:
        loss: loss of the predicted tokens, in nats.
        slope: z times the derivative of that sum by z.
        slope_by_entry: the derivative.
        direct: z times its direct effect on the log probability of the true token.
        direct_by_entry: the direct effect of a unit of each entry.
        size: norm of what a head writes, as a share of that of the stream where this is not 0.
        copied: effect on the logit of the attended token, beyond that of the tokens that the query
            could see, times the attention off the sink; over the sampled queries.
        weight: attention off the sink, over the sampled queries.
        z: sum of z over all windows of the group.
        written: sum over the group of what a head writes at the sampled queries, times the scale of
            the final norm and the attention off the sink.
        edge_slopes: of each window, the derivative of its loss by z at the queries that give an
            edge (see `interp.profiles.edges`).
        edge_scales: the factor of all norms between what a head writes there and the logits; 0
            where what heads write is not read.
    """

    loss: Float[np.ndarray, " window"]
    slope: Float[np.ndarray, "window head"]
    slope_by_entry: Float[np.ndarray, "window entry"]
    direct: Float[np.ndarray, "window head"]
    direct_by_entry: Float[np.ndarray, "window entry"]
    size: Float[np.ndarray, "window head"]
    copied: Float[np.ndarray, "window head"]
    weight: Float[np.ndarray, "window head"]
    z: Float[np.ndarray, " entry"]
    written: Float[np.ndarray, "head d_model"]
    edge_slopes: list[Float[np.ndarray, "head edge dim"]]
    edge_scales: list[Float[np.ndarray, "head edge"]]


def entries_of(sites: Sequence[Site]) -> dict[Site, slice]:
    """Return the place of each attention among the entries of all outputs z."""
    ends = np.cumsum([0, *(site.n_heads * site.d_v for site in sites)]).tolist()
    return {site: slice(a, b) for site, a, b in zip(sites, ends[:-1], ends[1:], strict=True)}


def gradient_look(
    look: Look,
    writes: HeadWrites,
    windows: Sequence[PredictedText],
    edge_rows: Sequence[Int[np.ndarray, " edge"]],
    advance: Callable[[], Any],
) -> GradientSums:
    """Run the model forward and backward on a group of windows."""
    passes = _Passes(look, writes, len(windows))
    for at, (window, rows) in enumerate(zip(windows, edge_rows, strict=True)):
        passes.add(at, window, rows)
        advance()
    return GradientSums(**passes.sums, **passes.edges)


class _Passes:
    """Sums of a group while its windows are run."""

    def __init__(self, look: Look, writes: HeadWrites, n: int) -> None:
        self.look, self.writes = look, writes
        self.entries = entries_of(look.sites)
        n_entries = sum(site.n_heads * site.d_v for site in look.sites)
        heads = (n, look.n_heads)
        shapes: dict[str, tuple[int, ...]] = {
            "loss": (n,),
            "slope": heads,
            "slope_by_entry": (n, n_entries),
            "direct": heads,
            "direct_by_entry": (n, n_entries),
            "size": heads,
            "copied": heads,
            "weight": heads,
        }
        self.sums: dict[str, Any] = {
            name: np.zeros(shape, np.float32) for name, shape in shapes.items()
        }
        self.sums["z"] = np.zeros(n_entries)
        self.sums["written"] = np.zeros((look.n_heads, look.model.d_model))
        self.edges: dict[str, Any] = {"edge_slopes": [], "edge_scales": []}

    def add(self, at: int, predicted: PredictedText, edge_rows: Int[np.ndarray, " edge"]) -> None:
        """Run one window and add its sums."""
        model, look, window = self.look.model, self.look, predicted.window
        seen: dict[Site, tuple[Tensor, Tensor, AttentionRows]] = {}
        queries = np.asarray(window.queries)
        rows, sink = torch.as_tensor(queries), sink_of(window, look.reader.special)

        def visit(site: Site, call: Call, real: Tensor) -> None:
            if site not in self.entries:
                return
            model.require_finite(call, site)
            with torch.no_grad():
                read = AttentionRows.read(call, rows, sink)
            shift = torch.zeros_like(call.z, requires_grad=True)
            seen[site] = call.z.detach(), shift, read
            call.z = call.z + shift

        names = () if self.writes.why_not else STREAMS
        prompts = Prompts((window.ids,))
        with torch.enable_grad(), frozen(model.module), inference(model.module):
            with model.visited(visit):
                cache = model.capture(
                    prompts, names, layers=self.writes.layers, stack=self.writes.stack, grad=True
                )
            wanted = torch.as_tensor(predicted.tokens, device=cache.logits.device)
            logits = cache.logits[0, torch.as_tensor(predicted.places, device=wanted.device)]
            loss = torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="sum")
            if not bool(loss.isfinite()):
                raise NonFiniteError(
                    f"{model.name}: the loss of {window.name} is {float(loss.detach())}"
                )
            slopes = torch.autograd.grad(loss, [shift for _, shift, _ in seen.values()])
        self.sums["loss"][at] = float(loss.detach())
        places = torch.as_tensor(queries[edge_rows])
        shape = (look.n_heads, len(places))
        slopes_there = np.zeros((*shape, vector_length(look.sites)), np.float32)
        for (site, (output, _, read)), derivative in zip(seen.items(), slopes, strict=True):
            if not bool(derivative.isfinite().all()):
                raise NonFiniteError(
                    f"{model.name}: NaN or infinity in the derivatives of {site.name} on "
                    f"{window.name}; try float32"
                )
            place, entries = look.places[site], self.entries[site]
            z, slope = output[0].float(), derivative[0].float()
            self.sums["z"][entries] += z.double().sum(1).flatten().cpu().numpy()
            self._keep("slope", at, place, (z * slope).sum((1, 2)))
            self._keep("slope_by_entry", at, entries, slope.sum(1))
            self._keep("weight", at, place, read.weight.sum(1))
            slopes_there[place, :, : slope.shape[2]] = slope[:, places.to(slope.device)].cpu()
        self.edges["edge_slopes"].append(slopes_there)
        self.edges["edge_scales"].append(np.zeros(shape, np.float32))
        if not self.writes.why_not:
            with torch.no_grad():
                self._written(at, predicted, cache, seen, places)

    def _keep(self, name: str, at: int, place: slice, values: Tensor) -> None:
        self.sums[name][at, place] = values.flatten().cpu().numpy()

    def _written(
        self,
        at: int,
        predicted: PredictedText,
        cache: ActivationCache,
        seen: dict[Site, tuple[Tensor, Tensor, AttentionRows]],
        edges: Int[Tensor, " edge"],
    ) -> None:
        """Add the sums of what the heads write."""
        end, last, window = self.writes.end, self.writes.last_stream(cache), predicted.window
        towards = towards_truth(predicted, cache.logits[0].detach(), end, last)
        scale = end.scales(last).float()
        tokens = end.columns(torch.as_tensor(window.ids))
        rows = torch.as_tensor(window.queries, device=last.device)
        for site, (output, _, read) in seen.items():
            place, entries = self.look.places[site], self.entries[site]
            mine, z = self.writes.of[site], output[0].float()
            after = mine.scales(z)
            unit = torch.einsum("pd,hvd->hpv", towards * after[:, None], mine.matrix)
            self._keep("direct", at, place, (z * unit).sum((1, 2)))
            self._keep("direct_by_entry", at, entries, unit.sum(1))
            size = torch.einsum("hpv,hvw,hpw->hp", z, mine.gram, z).clamp_min(0).sqrt()
            stream = cache["resid_pre", site.layer, site.stack][0].detach().float().norm(dim=-1)
            share = torch.where(stream > 0, size * after.abs() / stream, 0)
            self._keep("size", at, place, share.sum(1))
            factor = (after * scale)[rows]
            self.edges["edge_scales"][-1][place] = (after * scale)[edges.to(rows.device)].cpu()
            written = torch.einsum("hrv,hvd->hrd", z[:, rows], mine.matrix) * factor[:, None]
            logits = written @ tokens
            mass, weight = read.mass.to(logits), read.weight.to(logits)
            visible = read.visible.to(logits)
            even = (logits * visible).sum(-1) / visible.sum(-1).clamp_min(1)
            self._keep("copied", at, place, (mass * logits).sum((1, 2)) - (weight * even).sum(1))
            totals = (written * weight[..., None]).double().sum(1)
            self.sums["written"][place] += totals.cpu().numpy()


def towards_truth(
    predicted: PredictedText,
    logits: Float[Tensor, "pos d_vocab"],
    end: Finish,
    last: Float[Tensor, "pos d_model"],
) -> Float[Tensor, "pos d_model"]:
    """Return the direction of the last stream that raises the log probability of the true token.

    It is the derivative with the scale of the final norm held; 0 where no token is predicted.
    """
    directions = torch.zeros_like(last)
    wanted = torch.as_tensor(predicted.tokens, device=last.device)
    places = torch.as_tensor(predicted.places, device=last.device)
    for start in range(0, len(wanted), _ROWS):
        mine = places[start : start + _ROWS]
        raw = logits[mine].float()
        change = -raw.softmax(-1)
        change[torch.arange(len(change)), wanted[start : start + _ROWS]] += 1
        if end.cap is not None:
            change *= 1 - (raw / end.cap) ** 2
        directions[mine] = end.back_all(change, last[mine])
    return directions
