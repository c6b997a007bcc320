"""Start and end of every word that is spoken in a recording, from cross attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.alignment.heard import FRAMES_PER_POSITION, HeardRecording, heard_recordings
from interp.alignment.links import AlignedRow, require_rows
from interp.alignment.speech import (
    cross_maps,
    declared_heads,
    filter_width,
    known_cross_heads,
    times_provenance,
)
from interp.alignment.time_result import (
    DECLARED,
    GIVEN,
    NULL_DRAWS,
    judged_times,
)
from interp.alignment.timed_rows import TimedRows
from interp.alignment.warping import first_frames, smoothed_weights
from interp.core.clusters import jackknife_error
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.tokens import words as token_texts
from interp.draw.parts import ALL_EQUAL, FoundPart, plain_value, result_part
from interp.model.content import tensors_hash
from interp.model.inputs import SOUNDS
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.model.model import Model

Array = np.ndarray
COLUMNS, BANDS = 240, 40  # of the pictures that a result keeps


@takes_model
def word_times(
    model: Model,
    recordings: Sequence[Any],
    *,
    heads: Sequence[Head | str | tuple[int, int]] | None = None,
    rows: AlignedRow = "emits",
    width: int | None = None,
    language: str | None = None,
) -> ResultRows:
    """Find when each word of some recordings is spoken, from the cross attention of some heads.

    The rows of the tokens are standardised over tokens, smoothed by a median filter over time,
    averaged over the heads and aligned with the sound by dynamic time warping; a word starts with
    its first token.

    Args:
        model: a speech model with encoder and decoder and its processor, such as Whisper.
        recordings: `Utterance`s, or mappings with "audio", "text" and perhaps "words".
        heads: cross-attention heads; those that the model declares by default
            (`generation_config.alignment_heads`).
        rows: the decoder row that stands for a token: the one that "emits" it, as in the repository
            of Whisper, or the one that is "fed" it, as in transformers.
        width: encoder positions of the median filter; by default the config's, else 7.
        language: language of the text, such as "en", for a tokenizer that writes it as a token.

    Reference: Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision",
    and the word timestamps of its repository.

    Returns:
        One row per word: recording, place (in its text, from 0), word, score (its start) with sem
        (a jackknife over the heads that are read together, NaN with one head: how far they agree,
        not how far they are right), null (its start if all tokens were spaced evenly over the
        sound), n (heads), end (the start of what follows; the end of the sound for a last word
        without it), gold (the given start, NaN where it is not known) and error. By row:
        of_recording, and token, the row of `attention` of the word's first token. Facts: of, the
        heads; recordings, their names; and of the first recording bands, its spectrogram over the
        part with sound, attention, the mean over the heads with a row per token, tokens, their
        texts, sound, its duration in seconds, and attention_title.

    Raises:
        OptionError: the model has no cross attention, declares no heads where none are given, or
            lacks a head.
        PromptError: the model reads no sound, or a recording does not fit it.

    Unit: seconds.

    Cost: One forward pass per recording.

    Null: all tokens spaced evenly over the sound.

    Not for: a text that is not what is said: every word gets a time.
    """
    [row] = _one_row(rows)
    heard = heard_recordings(model, recordings, language=language)
    chosen = read_heads(model, heads)
    if not chosen:
        raise OptionError(
            f"{model.name} declares no heads for times (generation_config.alignment_heads); give "
            "heads, or choose them by recordings with gold times (word_time_errors)"
        )
    width = filter_width(model, width)
    parts: list[dict[str, Any]] = []
    picture: dict[str, Any] = {}
    for one in heard:
        maps = cross_maps(model, one.inputs)
        raw = one.part(np.stack([maps[head][0] for head in chosen]), row)
        parts.append(_timed(one, smoothed_weights(raw, width)))
        picture = picture or _picture(model, one, raw)
    settings = {
        "prompts_hash": _hash(heard),
        "options": {
            "heads": [str(h) for h in chosen],
            "rows": row,
            "width": width,
            "language": language,
        },
    }
    counts = [len(part["start"]) for part in parts]
    names = ("places", "token", "start", "end", "sem", "even", "gold")
    values = {name: np.concatenate([part[name] for part in parts]) for name in names}
    words = [word for one in heard for word in one.recording.text.split()]
    return word_time_rows(
        chosen,
        tuple(one.recording.name for one in heard),
        np.repeat(np.arange(len(heard)), counts),
        words,
        values,
        picture,
        times_provenance(model, "word_times", len(heard), None) | settings,
    )


def word_time_rows(
    of: tuple[Head, ...],
    recordings: tuple[str, ...],
    of_recording: Int[Array, " word"],
    words: Sequence[str],
    values: Mapping[str, Array],
    picture: Mapping[str, Any],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per word; see `word_times` for columns and facts."""
    columns = {
        "recording": [recordings[i] for i in of_recording],
        "place": values["places"],
        "word": list(words),
        "score": values["start"],
        "sem": values["sem"],
        "null": values["even"],
        "n": len(of),
        "end": values["end"],
        "gold": values["gold"],
        "error": np.abs(values["start"] - values["gold"]),
    }
    names = ", ".join(f"cross.{head}" for head in of)
    title = f"attention of {names}" if len(of) == 1 else f"mean attention of {names}"
    facts = {
        "metric": "word_start",
        "unit": "seconds",
        "of": of,
        "recordings": recordings,
        "attention_title": title,
        **picture,
    }
    return ResultRows(
        "WordTimes",
        columns,
        ("recording", "place", "word"),
        made,
        facts,
        why_no_per_prompt="a word belongs to one recording",
        by="lowest",
        arrays={"of_recording": of_recording, "token": values["token"]},
    )


@takes_model
def word_time_errors(
    model: Model,
    recordings: Sequence[Any],
    *,
    heads: Sequence[Head | str | tuple[int, int]] | None = None,
    rows: AlignedRow = "emits",
    n_heads: int = 3,
    select: float = 0.5,
    width: int | None = None,
    language: str | None = None,
    n_random: int = NULL_DRAWS,
    seed: int = 0,
) -> ResultRows:
    """Compare the start of words by every cross-attention head with gold times.

    Args:
        model: a speech model with encoder and decoder and its processor, such as Whisper.
        recordings: `Utterance`s with `words`, or mappings with "audio", "text" and "words".
        heads: heads that are read together; those that the model declares by default. If they are
            given, none are chosen and all recordings judge.
        rows: the decoder row that stands for a token; see `word_times`.
        n_heads: number of heads to choose on some recordings; 0 for none.
        select: share of the recordings on which they are chosen; the others judge.
        width: encoder positions of the median filter; by default the config's, else 7.
        language: language of the text; see `word_times`.
        n_random: number of random orders of the token rows.
        seed: seed of the split and of the null.

    Reference: Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision".

    Returns:
        One row per head and per set of heads: heads_read (its name), stack, layer, head (of single
        heads), score (the mean distance between found and given start times on recordings that did
        not choose heads) with sem, null, p (probability of a mean error as low under the null), n,
        even (the error of tokens spaced evenly over the sound) and p_holm (p corrected over all
        rows, also after `top`). By row: of, the heads, and starts, `[row, recording, token]`,
        NaN beyond. Facts: evenly_spaced; judged, the indices of the judged recordings.
        `heads_of_row` finds the heads of a row by its name.

    Raises:
        OptionError: the model has no cross attention or lacks a head, or an option is out of range.
        PromptError: a recording does not fit the model or has no gold times, or there are fewer
            than four to choose heads on.

    Unit: seconds.

    Cost: One forward pass per recording, and one dynamic program of tokens times frames per head,
    recording and null draw.

    Null: the token rows of the attention in random order. The error of tokens that are spaced
    evenly over the sound stands beside it (`even`).

    Not for: the ends of words, or a text that is not what is said.
    """
    [row] = _one_row(rows)
    heard = heard_recordings(model, recordings, language=language)
    for at, one in enumerate(heard):
        one.require_gold(at)
    width = filter_width(model, width)
    timed, names = [], ()
    for one in heard:
        maps = cross_maps(model, one.inputs)
        names = tuple(maps)
        raw = one.part(np.stack([x[0] for x in maps.values()]), row)
        timed.append(
            TimedRows(smoothed_weights(raw, width), one.times(raw.shape[1]), len(one.words))
        )
    chosen = read_heads(model, heads)
    n_heads = 0 if heads is not None else n_heads
    settings = {
        "prompts_hash": _hash(heard),
        "options": {
            "heads": [str(h) for h in chosen],
            "rows": row,
            "choose": n_heads,
            "select": select,
            "width": width,
            "language": language,
            "null_draws": n_random,
        },
    }
    return judged_times(
        names,
        timed,
        sets={DECLARED if heads is None else GIVEN: chosen},
        n_heads=n_heads,
        select=select,
        seconds=heard[0].seconds,
        n_random=n_random,
        seed=seed,
        provenance=times_provenance(model, "word_time_errors", len(heard), seed) | settings,
    )


def read_heads(
    model: Model, heads: Sequence[Head | str | tuple[int, int]] | None
) -> tuple[Head, ...]:
    """Return cross-attention heads by their names; those that the model declares for None."""
    if heads is None:
        return declared_heads(model)
    parsed = [Head.parse(head) for head in heads]
    return known_cross_heads(model, [Head(h.layer, h.head, "cross") for h in parsed], "heads")


def _one_row(rows: str) -> tuple[AlignedRow, ...]:
    kinds = require_rows(rows)
    if len(kinds) > 1:
        raise OptionError("rows='both' is not known for times; give 'emits' or 'fed'")
    return kinds


def _timed(one: HeardRecording, weights: Float[Array, "head token position"]) -> dict[str, Array]:
    """Return start, end, error, evenly spaced and gold start of every word, in seconds."""
    count = len(weights)
    sets = [weights.mean(0)]
    if count > 1:
        sets += [np.delete(weights, at, 0).mean(0) for at in range(count)]
    frames = first_frames(-np.stack(sets)) * one.seconds
    first = list(one.starting)
    sem = jackknife_error(frames[1:, first]) if count > 1 else np.full(len(first), np.nan)
    whole = one.positions * one.seconds
    after = np.append(frames[0], whole)[: weights.shape[1] + 1]
    ends = [after[at] for at in (*first[1:], len(one.words))]
    even = np.arange(len(one.words)) * whole / len(one.words)
    gold = np.array(one.recording.starts())
    return {
        "places": np.arange(len(first)),
        "token": np.array(first),
        "start": frames[0, first],
        "end": np.array(ends),
        "sem": sem,
        "even": even[first],
        "gold": gold,
    }


def _picture(
    model: Model, one: HeardRecording, raw: Float[Array, "head token position"]
) -> dict[str, Any]:
    """Return spectrogram and attention of one recording, small enough to keep."""
    frames = one.positions * FRAMES_PER_POSITION
    bands = one.inputs[SOUNDS[0]][0, :, :frames].float().cpu().numpy()
    ids = one.inputs["decoder_input_ids"][0, one.first :].tolist()
    return {
        "bands": _pooled(_pooled(bands, COLUMNS).T, BANDS).T.astype(np.float32),
        "attention": _pooled(raw.mean(0)[: len(ids)], COLUMNS).astype(np.float32),
        "tokens": tuple(token_texts(model, ids)),
        "sound": one.positions * one.seconds,
    }


def _pooled(values: Float[Array, "row column"], most: int) -> Float[Array, "row less"]:
    """Return means over neighbouring columns, at most so many."""
    size = values.shape[1]
    if size <= most:
        return values
    starts = np.arange(most) * size // most
    return np.add.reduceat(values, starts, 1) / np.diff([*starts, size])


def _hash(given: Sequence[HeardRecording]) -> str:
    tensors = {f"{name} {at}": x for at, one in enumerate(given) for name, x in one.inputs.items()}
    return tensors_hash(tensors)


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

    shown = (found.bands, found.attention, found.tokens, found.sound, found.attention_title)
    return sound_figure(*shown, _starts(found))


def _starts(found: ResultRows) -> list[tuple[float, int]]:
    """Return the start and the token of each word of the first recording."""
    mine = np.flatnonzero(found.of_recording == 0)
    return list(zip(found.score[mine].tolist(), found.token[mine].tolist(), strict=True))


def word_times_part(found: ResultRows) -> FoundPart:
    """Return when the words of the first recording are spoken, with its spectrogram."""
    figure: Any = {
        "draw": "sound",
        "bands": plain_value(found.bands),
        "attention": plain_value(found.attention),
        "tokens": list(found.tokens),
        "seconds": found.sound,
        "title": found.attention_title,
        "starts": [*map(list, _starts(found))],
    }
    labels = [f"cross {head}" for head in found.of]
    error = " The error of a start is a jackknife over the heads." if len(found.of) > 1 else ""
    text = f"{found}. The picture is {found.recordings[0]}; dots are found starts.{error}"
    note = f"Times of spoken words in {found.recordings[0]}, beside its spectrogram"
    shown = {"heads": labels, "figure": figure, "notes": dict.fromkeys(labels, note)}
    return result_part(found, "speech", "Times of spoken words", text, drop=ALL_EQUAL, **shown)


present("WordTimes", summary=word_times_summary, plot=word_times_figure, part=word_times_part)
