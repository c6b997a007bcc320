"""Start and end of every word that is spoken in a recording, from cross attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    TimeAlignments,
    judged_times,
)
from interp.alignment.timed_rows import TimedRows
from interp.alignment.warping import first_frames, smoothed_weights
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.result import Result
from interp.core.tokens import words as token_texts
from interp.model.content import tensors_hash
from interp.model.inputs import SOUNDS
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.model.model import Model

Array = np.ndarray
COLUMNS, BANDS = 240, 40  # of the pictures that a result keeps


@dataclass(frozen=True, eq=False, repr=False)
class WordTimes(Result):
    """Start and end of every word of some recordings, in seconds; rows are words.

    The score is the start. Its standard error is a jackknife over the heads that are read together
    (NaN with one head), so it says how far the heads agree, not how far they are right. The null is
    the start of the word if all tokens were spaced evenly over the sound.

    Args:
        of: the heads that are read together.
        recordings: names of the recordings.
        of_recording: recording of each word.
        words: the words.
        places: place of each word in its text, from 0.
        token: row of `attention` of the word's first token, in the first recording.
        start: found start.
        end: found start of what follows; the end of the sound for a last word without it.
        sem: standard error of the start.
        even: start with evenly spaced tokens.
        gold: given start, NaN where it is not known.
        bands: spectrogram of the first recording, over the part with sound.
        attention: attention of the first recording, mean over the heads, a row per token.
        tokens: texts of these rows.
        sound: duration of the first recording in seconds.
    """

    of: tuple[Head, ...]
    recordings: tuple[str, ...]
    of_recording: Int[Array, " word"]
    words: tuple[str, ...]
    places: Int[Array, " word"]
    token: Int[Array, " word"]
    start: Float[Array, " word"]
    end: Float[Array, " word"]
    sem: Float[Array, " word"]
    even: Float[Array, " word"]
    gold: Float[Array, " word"]
    bands: Float[Array, "band frame"]
    attention: Float[Array, "token position"]
    tokens: tuple[str, ...]
    sound: float
    provenance: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "a word belongs to one recording"
    _units = ("recording", "place", "word")
    _per_row = ("of_recording", "words", "places", "token", "start", "end", "sem", "even",
                "gold")  # fmt: skip
    _by = "lowest"

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(
            {
                "recording": [self.recordings[i] for i in self.of_recording],
                "place": self.places,
                "word": list(self.words),
                "metric": "word_start",
                "score": self.start,
                "sem": self.sem,
                "null": self.even,
                "n": len(self.of),
                "unit": "seconds",
                "end": self.end,
                "gold": self.gold,
                "error": np.abs(self.start - self.gold),
            }
        )

    def plot(self) -> go.Figure:  # type: ignore[override]  # every row is drawn
        """Draw the first recording's spectrogram above the attention, with the found starts."""
        from interp.alignment.sound_pictures import sound_figure

        mine = np.flatnonzero(self.of_recording == 0)
        return sound_figure(
            self.bands, self.attention, self.tokens, self.sound, self.attention_title(),
            list(zip(self.start[mine].tolist(), self.token[mine].tolist(), strict=True)),
        )  # fmt: skip

    def attention_title(self) -> str:
        """Name the heads whose attention is drawn."""
        names = ", ".join(f"cross.{head}" for head in self.of)
        return f"attention of {names}" if len(self.of) == 1 else f"mean attention of {names}"

    def __repr__(self) -> str:
        known = np.isfinite(self.gold)
        text = ""
        if known.any():
            error = np.abs(self.start - self.gold)[known].mean()
            even = np.abs(self.even - self.gold)[known].mean()
            text = f"; mean distance to gold {error:.3g} s, evenly spaced {even:.3g} s"
        return (
            f"WordTimes of {len(self.words)} words in {len(self.recordings)} recordings by "
            f"{', '.join(map(str, self.of))}{text}"
        )


@takes_model
def word_times(
    model: Model,
    recordings: Sequence[Any],
    *,
    heads: Sequence[Head | str | tuple[int, int]] | None = None,
    rows: AlignedRow = "emits",
    width: int | None = None,
    language: str | None = None,
) -> WordTimes:
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
    given = heard_recordings(model, recordings, language=language)
    chosen = read_heads(model, heads)
    if not chosen:
        raise OptionError(
            f"{model.name} declares no heads for times (generation_config.alignment_heads); give "
            "heads, or choose them by recordings with gold times (word_time_errors)"
        )
    width = filter_width(model, width)
    parts: list[dict[str, Any]] = []
    picture: dict[str, Any] = {}
    for one in given:
        maps = cross_maps(model, one.inputs)
        raw = one.part(np.stack([maps[head][0] for head in chosen]), row)
        parts.append(_timed(one, smoothed_weights(raw, width)))
        picture = picture or _picture(model, one, raw)
    made = {
        "prompts_hash": _hash(given),
        "options": {"heads": [str(h) for h in chosen], "rows": row, "width": width,
                    "language": language},
    }  # fmt: skip
    counts = [len(part["start"]) for part in parts]
    names = ("places", "token", "start", "end", "sem", "even", "gold")
    return WordTimes(
        of=chosen,
        recordings=tuple(one.recording.name for one in given),
        of_recording=np.repeat(np.arange(len(given)), counts),
        words=tuple(word for one in given for word in one.recording.text.split()),
        **{name: np.concatenate([part[name] for part in parts]) for name in names},
        **picture,
        provenance=times_provenance(model, "word_times", len(given), None) | made,
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
) -> TimeAlignments:
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
    given = heard_recordings(model, recordings, language=language)
    for at, one in enumerate(given):
        one.require_gold(at)
    width = filter_width(model, width)
    timed, names = [], ()
    for one in given:
        maps = cross_maps(model, one.inputs)
        names = tuple(maps)
        raw = one.part(np.stack([x[0] for x in maps.values()]), row)
        timed.append(
            TimedRows(smoothed_weights(raw, width), one.times(raw.shape[1]), len(one.words))
        )
    own = read_heads(model, heads)
    n_heads = 0 if heads is not None else n_heads
    made = {
        "prompts_hash": _hash(given),
        "options": {"heads": [str(h) for h in own], "rows": row, "choose": n_heads,
                    "select": select, "width": width, "language": language,
                    "null_draws": n_random},
    }  # fmt: skip
    return judged_times(
        names, timed, sets={DECLARED if heads is None else GIVEN: own}, choose=n_heads,
        select=select, seconds=given[0].seconds, null_draws=n_random, seed=seed,
        provenance=times_provenance(model, "word_time_errors", len(given), seed) | made,
    )  # fmt: skip


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
    left_out = frames[1:, first]
    spread = (count - 1) / count * ((left_out - left_out.mean(0)) ** 2).sum(0) if count > 1 else (
        np.full(len(first), np.nan)
    )  # fmt: skip
    whole = one.positions * one.seconds
    after = np.append(frames[0], whole)[: weights.shape[1] + 1]
    ends = [after[at] for at in (*first[1:], len(one.words))]
    even = np.arange(len(one.words)) * whole / len(one.words)
    gold = np.array(one.recording.starts())
    return {"places": np.arange(len(first)), "token": np.array(first),
            "start": frames[0, first], "end": np.array(ends), "sem": np.sqrt(spread),
            "even": even[first], "gold": gold}  # fmt: skip


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
