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
from papers.evicting import (
    DEEP,
    HOST,
    copied_rows,
    deep_hosts,
    every_head,
    hiding,
    host,
    loss,
    text_rows,
)
from papers.finding import Finding, claim, mean, rank_correlation
from training import forms
from training.alike import SEEDS, SIZES, asked_rows, loaded


@claim("Unveiling and Harnessing Hidden Attention Sinks", DEEP)
def calibrated() -> list[Finding]:
    """Move attention off sinks in heads where that lowers the loss of other rows."""
    found = []
    for kind, chosen_on, judged_on, scored in (
        ("text", text_rows(32, False, 96, False), text_rows(48, True, 96, False), 64),
        ("copies", copied_rows(32, 1, 45, False), copied_rows(48, 0, 45, False), 44),
    ):
        gains = []
        for model in deep_hosts():
            plain = loss(model, chosen_on, scored).mean()
            heads = [
                head
                for head in every_head(model)
                if loss(model, chosen_on, scored, calibrate([head])).mean() < plain
            ]
            edits = [calibrate(heads)] if heads else []
            gains.append(loss(model, judged_on, scored, *edits) - loss(model, judged_on, scored))
        found.append(
            mean(
                f"{kind}: loss with attention moved off sinks minus without",
                np.mean(gains, 0),
                "nats",
                "below",
                0,
                "48 rows, mean over three models; heads chosen on others",
            )
        )
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
        mean(
            "share of attention on the first token, trained minus untrained softmax",
            softmax - untrained,
            "share",
            "above",
            0,
            each,
        ),
        mean(
            "share of attention on the first token, softmax minus sigmoid",
            softmax - sigmoid,
            "share",
            "above",
            0,
            each,
        ),
    ]


def _apart(pieces: int, queries: int, shared: int) -> Edit:
    def keep(call: Call, site: Site) -> Tensor:
        return ~in_other_piece(call.z.shape[2], pieces, queries, shared)[None, None]

    return hiding(host(), keep, "pieces")


@claim("Attention Entropy is a Key Factor", HOST)
def in_pieces() -> list[Finding]:
    """Encode 160 tokens of text in 4 pieces: entropy of the next 32 queries, and their loss."""
    rows, queries = text_rows(96), 32
    given = Prompts.of(rows, host())

    def entropy(pieces: int, shared: int = 0) -> np.ndarray:
        found = entropies(host(), given, pieces, queries, shared)
        return torch.stack([x.mean(1) for x in found.values()]).mean(0).numpy()

    rise = entropy(4) - entropy(1)
    with_sink = entropy(4, shared=4) - entropy(1)
    whole, bare, shared = (
        loss(host(), rows, queries, *edits)
        for edits in ((), (_apart(4, queries, 0),), (_apart(4, queries, 4),))
    )
    return [
        mean(
            "entropy in pieces minus in the whole text, mean over heads",
            rise,
            "nats",
            "above",
            0,
            "96 texts",
        ),
        rank_correlation(
            "rise of entropy and rise of the loss",
            rise.tolist(),
            (bare - whole).tolist(),
            "above",
            0,
            "96 texts",
        ),
        mean(
            "entropy in pieces minus in pieces that share 4 first tokens",
            rise - with_sink,
            "nats",
            "above",
            0,
            "96 texts",
        ),
        mean(
            "loss in pieces minus in pieces that share 4 first tokens",
            bare - shared,
            "nats",
            "above",
            0,
            "96 texts",
        ),
    ]


@claim("Massive Values in Self-Attention", HOST)
def massive() -> list[Finding]:
    """Set the largest channel of queries and keys to its mean, or the smallest: copies and text."""
    rises = {}
    for kind, rows, scored in (("copies", copied_rows(96, 0), 59), ("text", text_rows(96), 128)):
        plain = loss(host(), rows, scored)
        rises[kind] = [
            loss(host(), rows, scored, replace_channel(every_head(host()), which=which)) - plain
            for which in ("largest", "smallest")
        ]
    (large, small), (large_text, small_text) = rises["copies"], rises["text"]
    return [
        mean(
            "copies, read from the context: largest minus smallest channel",
            large - small,
            "nats",
            "above",
            0,
            "96 rows",
        ),
        mean(
            "largest minus smallest channel: on copies minus on text, which is read from weights",
            (large - small) - (large_text - small_text),
            "nats",
            "above",
            0,
            "96 pairs of rows",
        ),
    ]


@claim("Limitations of Normalization", HOST)
def limits() -> list[Finding]:
    """Distance and separability of 2 and of 32 top keys of texts, mean over heads."""
    found = []
    for metric, what in (
        ("selection_distance", "distance of the selected values from the others"),
        ("selection_share", "share of selected keys that can be told apart"),
    ):
        few, many = (
            interp.score(
                host(), METRICS.parse(f"{metric}:number={number}"), text_rows(48), null="none"
            ).per_prompt
            for number in (2, 32)
        )
        assert few is not None
        assert many is not None
        found.append(
            mean(
                f"{what}, 2 top keys minus 32",
                few.mean(0) - many.mean(0),
                "share",
                "above",
                0,
                "48 texts of 192 tokens, mean over heads",
            )
        )
    return found
