"""Locate the weight matrices of each attention layer by value, and the modules around them.

A projection is the module whose output's columns are q, k or v (see `matching`), in a run on
single tokens (see `recording`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from interp.model.calls.call import Call, ComputedCall, repeat_kv
from interp.model.calls.sites import Site
from interp.model.locate.layout import (
    Columns,
    Entering,
    FoldStep,
    Layout,
    Layouts,
    Leaving,
    OwnNorm,
    ReadMatrix,
    Vocabulary,
    Writing,
    find_columns,
    flat,
    heads_flat,
    stream_read,
    stream_written,
)
from interp.model.locate.linear import has_matrix
from interp.model.locate.norms import read_norm
from interp.model.locate.recording import Recording, proportional, record

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.locate.find_sites import Event
    from interp.model.transformer import Transformer


_STEPS = 4


def find_vocabulary(model: Transformer, recording: Recording) -> Vocabulary:
    """Trace the first stream of each stack to its embedding, and the logits to the last."""
    entering: dict[str, Entering | str] = {}
    for site in model.sites:
        stream = stream_written(site)
        if stream not in entering and site.stack != "cross":
            entering[stream] = _entering(model, recording, site, stream)
    return Vocabulary(entering, _leaving(model, recording))


def _matrix_giving(recording: Recording, x: Tensor) -> Event | None:
    for e in reversed(recording.events):
        if e.given is None or e.returned is None or not proportional(e.returned, x):
            continue
        matrix = has_matrix(recording.module.get_submodule(e.name))
        if matrix and not proportional(e.given, e.returned):
            return e
    return None


def _back(recording: Recording, x: Tensor) -> tuple[FoldStep, Tensor] | None:
    """Go back one step: return the norm or matrix that gave x, and its input."""
    for kind, e in (
        ("norm", recording.norm_giving(x)),
        ("matrix", _matrix_giving(recording, x)),
    ):
        if e is not None and e.given is not None:
            return FoldStep(kind, e.name, e.given.shape[-1]), e.given
    return None


def _entering(model: Transformer, recording: Recording, site: Site, stream: str) -> Entering | str:
    if not recording.embedded:
        return f"{model.name}: the {stream} stream is not made from token ids"
    blocks = recording.blocks(site)
    if not blocks:
        return f"{model.name}: the beginning of the {stream} stream was not found"
    x = blocks[0].given
    steps: list[FoldStep] = []
    for _ in range(_STEPS):
        if x is None:
            break
        for (table, _), (noise, scale) in recording.embedded.items():
            factor = _shifted(x, noise)
            if factor is not None:
                return Entering(table, scale * factor, tuple(reversed(steps)))
        back = _back(recording, x)
        if back is None:
            break
        steps.append(back[0])
        x = back[1]
    return f"{model.name}: the first {stream} stream is not a linear function of a token embedding"


def _shifted(x: Tensor, noise: Tensor) -> float | None:
    """Return the factor of the noise in x, where the rest is equal for every token; else None.

    Differences between positions (position embeddings) are removed per position.
    """
    if x.numel() != noise.numel() or x.shape[-1] != noise.shape[-1]:
        return None
    x, noise = x.reshape(noise.shape).double(), noise.double()
    if noise.dim() != 3 or noise.shape[0] < 2:
        return None
    x, noise = x - x.mean(0), noise - noise.mean(0)
    factor = float((x * noise).sum() / noise.square().sum())
    close = float((x - factor * noise).abs().max()) < 1e-4 * float(x.abs().max())
    return factor if close and factor > 0 else None


def _leaving(model: Transformer, recording: Recording) -> Leaving | str:
    if recording.logits is None:
        return f"{model.name} has no unembedding: its output is not logits"
    n = recording.logits.shape[-1]
    if n != model.d_vocab:
        return f"{model.name} reads {model.d_vocab} tokens but predicts {n}: no shared vocabulary"
    last = next(
        (
            e
            for e in reversed(recording.events)
            if e.given is not None
            and e.returned is not None
            and e.returned.shape[-1] == n
            and has_matrix(recording.module.get_submodule(e.name))
        ),
        None,
    )
    if last is None or last.given is None:
        return f"{model.name}: no module's matrix gives the logits"
    x, steps = last.given, []
    for _ in range(_STEPS):
        if recording.is_stream(x):
            return Leaving(last.name, last.given.shape[-1], tuple(reversed(steps)))
        back = _back(recording, x)
        if back is None:
            break
        steps.append(back[0])
        x = back[1]
    return (
        f"{model.name}: what {last.name} reads is not a linear function of the residual stream "
        "(a nonlinear layer precedes the unembedding)"
    )


_FEWEST = 8
_ROUNDING = 1e-5  # of a factor between two outputs


_known: WeakKeyDictionary[Transformer, tuple[tuple, Layouts]] = WeakKeyDictionary()


def layouts(model: Transformer) -> Layouts:
    """Return the locations of a model's weights; they are searched again after a parameter changed.

    Only locations are stored, never values: weights are read from the model on request.
    """
    state = tuple((id(p), 0 if p.is_inference() else p._version) for p in model.module.parameters())
    known = _known.get(model)
    if known is None or known[0] != state:
        recording = record(model)
        sites = _with_readers({site: _layout(recording, site) for site in model.sites})
        known = state, Layouts(sites, find_vocabulary(model, recording))
        _known[model] = known
    return known[1]


def _with_readers(sites: dict[Site, Layout]) -> dict[Site, Layout]:
    """Record for each attention the norm through which its stream's last reader reads it."""
    readers: dict[str, tuple[str, int] | None] = {}
    for site, layout in sites.items():
        for part in "vq":
            r = getattr(layout, part)
            name = r.before or r.stream_norm if isinstance(r, ReadMatrix) else None
            if name is not None:
                readers[stream_read(site, part)] = name, r.width
    return {
        site: replace(layout, readers=readers.get(stream_written(site)))
        for site, layout in sites.items()
    }


def _layout(recording: Recording, site: Site) -> Layout:
    at, call = next(
        (i, e.call)
        for i, e in enumerate(recording.events)
        if e.call is not None and e.name == site.module and e.run == site.run
    )
    start = max((i + 1 for i in range(at) if recording.events[i].call is not None), default=0)
    window = range(start, at)
    scores = (
        f"{site.name} ({site.module}): scores are a sum of products, no single q and k give them"
    )
    if site.kind != "softmax":
        scores = f"{site.name} ({site.module}): a {site.kind} map has no single q and k"
    q: ReadMatrix | str = scores
    k: ReadMatrix | str = scores
    scale = None
    if site.has_qk and call.q is not None and call.k is not None:
        q = _reading(recording, site, "queries", call.q, window)
        k = _reading(recording, site, "keys", call.k, window)
        scale = _scale(call, call.q, call.k)
    return Layout(
        q=q,
        k=k,
        v=_reading(recording, site, "values", call.v, window),
        o=_writing(recording, site),
        scale=scale,
    )


def _scale(call: Call, q: Tensor, k: Tensor) -> float | None:
    if isinstance(call, ComputedCall):
        return call.scale
    product = (q @ repeat_kv(k, call.n_heads).transpose(-1, -2)).double()
    scores, seen = call.scores().double(), call.visible().expand_as(product)
    x = torch.where(seen, product, 0.0).transpose(0, 1).flatten(1)
    y = torch.where(seen, scores, 0.0).transpose(0, 1).flatten(1)
    count = seen.transpose(0, 1).flatten(1).double()
    # A per-head bias (T5, ALiBi at distance zero) is a constant here: use the slope.
    x = x - count * (x.sum(1) / count.sum(1))[:, None]
    y = y - count * (y.sum(1) / count.sum(1))[:, None]
    if not float(x.abs().max()):
        return 1.0
    slope = float((x * y).sum() / x.square().sum())
    return slope if float((y - slope * x).abs().max()) < 1e-3 * float(y.abs().max()) else None


def _reading(
    recording: Recording, site: Site, what: str, x: Tensor, window: range
) -> ReadMatrix | str:
    where = f"{site.name} ({site.module})"
    target = heads_flat(x)
    rows = len(target)
    if rows < _FEWEST:
        return f"{where}: a run gave only {rows} tokens, too few to identify its matrices"
    matrices, indices = _matrices(recording, window, rows)
    columns = find_columns(target, matrices)
    own_norm = None
    if columns is None:
        own_norm, columns = _through_norm(recording, target, matrices, window)
    if columns is None:
        return f"{where}: the {what} are not columns of the output of a single matrix"
    event = recording.events[indices[columns.source]]
    given = event.given
    assert given is not None  # `_matrices` lists only modules that received a tensor
    width = given.shape[-1]
    before = recording.norm_giving(given, indices[columns.source])
    if recording.is_stream(given):
        made_by = None if before is None else before.name
        return ReadMatrix(event.name, width, columns, own_norm, event.run, None, made_by)
    if before is not None and before.given is not None and recording.is_stream(before.given):
        return ReadMatrix(event.name, width, columns, own_norm, event.run, before.name, None)
    pre = site.streams.get("resid_pre")
    block = None if pre is None else recording.of(pre.module, pre.run)
    if block is not None and block.given is not None and block.given.shape[-1] == width:
        return (
            f"{where}: {event.name}, which makes the {what}, reads neither the residual stream "
            "nor a "
            "norm of it as far as a run shows; in half precision sums are too coarse to see: load "
            "the model in float32"
        )
    return (
        f"{where}: the {what} are not one matrix times the residual stream: {event.name} reads "
        f"{width} values of another module (a latent, as in multi-head latent attention)"
    )


def _matrices(
    recording: Recording, window: Sequence[int], rows: int
) -> tuple[list[Tensor], list[int]]:
    outputs, indices = [], []
    for i in window:
        e = recording.events[i]
        if e.given is None or e.returned is None or e.returned.numel() % rows:
            continue
        matrix = has_matrix(recording.module.get_submodule(e.name))
        if matrix and e.given.numel() // e.given.shape[-1] == rows:
            outputs.append(flat(e.returned, rows))
            indices.append(i)
    return outputs, indices


def _through_norm(
    recording: Recording, target: Tensor, matrices: list[Tensor], window: range
) -> tuple[OwnNorm | None, Columns | None]:
    """Trace q or k back through a norm: its output is the target, its input a matrix's output."""
    rows = len(target)
    for i in reversed(window):
        e = recording.events[i]
        if e.given is None or e.returned is None or e.given.shape != e.returned.shape:
            continue
        if e.returned.numel() % rows or proportional(e.given, e.returned):
            continue
        after = find_columns(target, [flat(e.returned, rows)])
        columns = None if after is None else find_columns(flat(e.given, rows), matrices)
        if after is None or columns is None:
            continue
        shape = tuple(e.given.shape[1:])
        if read_norm(recording.module.get_submodule(e.name), shape) is not None:
            return OwnNorm(e.name, shape, after), columns
    return None, None


def _writing(recording: Recording, site: Site) -> Writing | str:
    where = f"{site.name} ({site.module})"
    if site.projection is None:
        return f"{where}: no module takes the heads' outputs as its input"
    out = site.streams.get("attn_out")
    if out is None or out.module == site.projection:
        return Writing(None, 1.0 if out is None else out.scale)
    projected, last = recording.of(site.projection, site.run), recording.of(out.module, out.run)
    if projected is None or last is None or projected.returned is None or last.given is None:
        return f"{where}: what {out.module} does to the heads' results was not observed"
    if last.returned is not None and proportional(projected.returned, last.returned):
        factor = float(last.returned.double().norm() / projected.returned.double().norm())
        return Writing(None, out.scale * (factor if abs(factor - 1) > _ROUNDING else 1.0))
    if not proportional(projected.returned, last.given):
        return f"{where}: more than one module stands between the heads' results and the stream"
    return Writing(out.module, out.scale)
