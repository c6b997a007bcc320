"""Locate embedding and unembedding of the residual stream by value.

The stream that the first attention of a stack reads is traced back to the noise that replaced the
embedding; the logits are traced back to the last stream. Norms and matrices on the way can be
folded; anything else makes the path nonlinear, and is refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from interp.model.locate.layout import Entering, FoldStep, Leaving, Vocabulary, stream_written
from interp.model.locate.linear import has_matrix
from interp.model.locate.recording import Recording, proportional

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
        for (table, _), (noise, own) in recording.embedded.items():
            factor = _shifted(x, noise)
            if factor is not None:
                return Entering(table, own * factor, tuple(reversed(steps)))
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
