"""Claims on sinks, on massive channels, and on what a softmax can tell apart."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import interp
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.heads.geometry.parallel_entropy import entropies, in_other_piece
from interp.heads.outliers import replace_channel
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from interp.model.pattern_edits import calibrate
from papers.evicting import KINDS, every_head, hiding, loss
from papers.finding import Finding, above, claim, on_decoders, rank_correlation
from papers.hosts import Host
from training import forms
from training.alike import SEEDS, SIZES, asked_rows, loaded


@on_decoders("Unveiling and Harnessing Hidden Attention Sinks")
def calibrated(host: Host) -> list[Finding]:
    """Move attention off sinks in heads where that lowers the loss of other rows."""
    model, found = host.model, []
    for kind in KINDS:
        chosen_on, judged_on = (host.rows(kind, 48, judged) for judged in (False, True))
        plain = loss(model, *chosen_on).mean()
        heads = [
            head
            for head in every_head(model)
            if loss(model, *chosen_on, calibrate([head])).mean() < plain
        ]
        edits = [calibrate(heads)] if heads else []
        gain = loss(model, *judged_on) - loss(model, *judged_on, *edits)
        what = f"{kind}: loss without minus with attention moved off sinks"
        found.append(above(what, gain, "48 rows; heads chosen on others"))
    return found


@claim(
    "When Attention Sink Emerges",
    "plain softmax and sigmoid attention trained alike for 600 steps, 3 seeds",
)
def emergence() -> list[Finding]:
    """Attention on the first token of held-out text, of trained softmax against the others."""
    rows = asked_rows("plain_softmax", "text").given.tolist()

    def first(model: interp.Model) -> float:
        return float(interp.score(model, "first_token", rows, null="none").to_pandas().score.mean())

    softmax, sigmoid = (
        np.array([first(loaded(form, seed)) for seed in SEEDS])
        for form in ("plain_softmax", "sigmoid")
    )
    untrained = np.array(
        [first(interp.load(forms.build("plain_softmax", seed=s, gain=1.0, **SIZES))) for s in SEEDS]
    )
    each = "3 seeds, 32 texts, mean over heads"
    return [
        above(
            "share of attention on the first token, trained minus untrained softmax",
            softmax - untrained,
            each,
            unit="share",
        ),
        above(
            "share of attention on the first token, softmax minus sigmoid",
            softmax - sigmoid,
            each,
            unit="share",
        ),
    ]


@on_decoders("Attention Entropy is a Key Factor")
def in_pieces(host: Host) -> list[Finding]:
    """Encode five sixths of a text in 4 pieces: entropy of the queries after it, and their loss."""
    rows, queries, model = host.texts(96), host.length // 6, host.model
    given = Prompts.of(rows, model)

    def entropy(pieces: int, shared: int = 0) -> np.ndarray:
        found = entropies(model, given, pieces, queries, shared)
        return torch.stack([x.mean(1) for x in found.values()]).mean(0).numpy()

    def apart(shared: int) -> Edit:
        def keep(call: Call, site: Site) -> Tensor:
            return ~in_other_piece(call.z.shape[2], 4, queries, shared)[None, None]

        return hiding(model, keep, "pieces")

    rise, without_sink = entropy(4) - entropy(1), entropy(4) - entropy(4, shared=4)
    whole, bare, shared = (
        loss(model, rows, queries, *edits) for edits in ((), (apart(0),), (apart(4),))
    )
    both, lost = "rise of entropy and rise of the loss", (bare - whole).tolist()
    each, what = "96 texts", "in pieces minus in pieces that share 4 first tokens"
    return [
        above("entropy in pieces minus in the whole text, mean over heads", rise, each),
        rank_correlation(both, rise.tolist(), lost, "above", 0, each),
        above(f"entropy {what}", without_sink, each),
        above(f"loss {what}", bare - shared, each),
    ]


@on_decoders("Massive Values in Self-Attention")
def massive(host: Host) -> list[Finding]:
    """Set the largest channel of queries and keys to its mean, or the smallest: copies and text."""
    rises, model = {}, host.model
    for kind in KINDS:
        given = host.rows(kind, 96)
        rises[kind] = [
            loss(model, *given, replace_channel(every_head(model), which=which))
            - loss(model, *given)
            for which in ("largest", "smallest")
        ]
    there, here = (a - b for a, b in (rises["text"], rises["copies"]))
    what = "largest minus smallest channel: on copies minus on text, which is read from weights"
    return [
        above("copies, read from the context: largest minus smallest channel", here, "96 rows"),
        above(what, here - there, "96 pairs of rows"),
    ]


@on_decoders("Limitations of Normalization")
def limits(host: Host) -> list[Finding]:
    """Distance and separability of 2 and of 32 top keys of texts, mean over heads."""
    found = []
    for metric, what in (
        ("selection_distance", "distance of the selected values from the others"),
        ("selection_share", "share of selected keys that can be told apart"),
    ):
        few, many = (
            np.asarray(
                interp.score(
                    host.model,
                    METRICS.parse(f"{metric}:number={number}"),
                    host.texts(48),
                    null="none",
                ).per_prompt
            )
            for number in (2, 32)
        )
        each = "48 texts, mean over heads"
        gain = few.mean(0) - many.mean(0)
        found.append(above(f"{what}, 2 top keys minus 32", gain, each, unit="share"))
    return found
