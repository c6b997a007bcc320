"""Text and figure of results on alignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.core.result_rows import ResultRows


def both_directions_summary(found: ResultRows) -> str:
    """Return the error rate of each alignment."""
    text = ", ".join(f"{k} {x:.3f}" for k, x in zip(found.alignment, found.score, strict=True))
    return f"Alignment error rate in two directions: {text}; agreement {found.agreement:.3f}"


def word_times_summary(found: ResultRows) -> str:
    """Return the number of words, the heads, and the distance to gold starts where known."""
    known, text = np.isfinite(found.gold), ""
    if known.any():
        error, even = (np.abs(x - found.gold)[known].mean() for x in (found.score, found.null))
        text = f"; mean distance to gold {error:.3g} s, evenly spaced {even:.3g} s"
    return (
        f"WordTimes of {len(found)} words in {len(found.recordings)} recordings by "
        f"{', '.join(map(str, found.of))}{text}"
    )


def word_times_figure(found: ResultRows) -> go.Figure:
    """Draw the first recording's spectrogram above the attention, with the found starts."""
    from interp.alignment.sound_pictures import sound_figure

    mine = np.flatnonzero(found.of_recording == 0)
    return sound_figure(
        found.bands,
        found.attention,
        found.tokens,
        found.sound,
        found.attention_title,
        list(zip(found.score[mine].tolist(), found.token[mine].tolist(), strict=True)),
    )


def time_alignments_summary(found: ResultRows) -> str:
    """Return the row of the lowest error, beside its null and evenly spaced tokens."""
    if not len(found):
        return "TimeAlignments without rows"
    first = found.top(1).to_pandas().iloc[0]
    return (
        f"TimeAlignments of {len(found)} rows on {found.per_prompt.shape[1]} judged recordings; "
        f"lowest error {first['heads_read']}: {first['score']:.3g} ± {first['sem']:.2g} s, token "
        f"rows in random order {first['null']:.3g} s, evenly spaced tokens "
        f"{found.evenly_spaced:.3g} s"
    )


def translation_heads_summary(found: ResultRows) -> str:
    """Return the head whose ablation costs most."""
    if not len(found):
        return "TranslationHeads without rows"
    first = found.top(1).to_pandas().iloc[0]
    return (
        f"TranslationHeads: {len(found)} heads on {found.per_prompt.shape[1]} pairs; without "
        f"{first['stack']}.L{first['layer']}H{first['head']} the loss rises most, by "
        f"{first['score']:.3g} ± {first['sem']:.2g} nats per token"
    )
