"""Recordings as a speech model reads them: its inputs, the rows of their words, their sound."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.alignment.links import AlignedRow
from interp.alignment.pairs import NO_WORD, require_cross, words_of_tokens
from interp.alignment.recordings import Utterance, given_recordings
from interp.core.errors import OptionError, PromptError
from interp.core.tokens import encoded_text
from interp.model.inputs import SOUNDS, takes
from interp.model.processing import processor_of, read_wav

if TYPE_CHECKING:
    from interp.model.model import Model

FRAMES_PER_POSITION = 2  # of Whisper's encoder, whose second convolution has a stride of 2


@dataclass(frozen=True, eq=False)
class HeardRecording:
    """One recording as inputs of one model.

    Args:
        recording: what was given.
        inputs: the model's tensors, one row.
        first: the decoder row that is fed the first token of the text.
        words: the word of each token of the text.
        positions: encoder positions that hold sound.
        seconds: duration of one encoder position.
    """

    recording: Utterance
    inputs: dict[str, Tensor]
    first: int
    words: tuple[int, ...]
    positions: int
    seconds: float

    @property
    def starting(self) -> tuple[int, ...]:
        """Index of the first token of each word of the text."""
        return tuple(self.words.index(word) for word in range(len(self.recording.text.split())))

    def require_gold(self, at: int) -> None:
        """Raise PromptError if no word has a gold time; `at` is the recording's number."""
        if not self.recording.words:
            raise PromptError(
                f"recording {at} ({self.recording.name}) has no gold times; give 'words', such as "
                f'[["{self.recording.text.split()[0]}", 0.12]]'
            )

    def times(self, rows: int) -> Float[np.ndarray, " row"]:
        """Return the gold start of every row of `part` in seconds, NaN where it is not given."""
        starts = np.full(rows, np.nan)
        starts[list(self.starting)] = self.recording.starts()
        return starts

    def part(
        self, weights: Float[np.ndarray, "head row position"], rows: AlignedRow
    ) -> Float[np.ndarray, "head token position"]:
        """Return the rows that stand for the tokens of the text, over the positions of the sound.

        One row follows: the row that emits the end, or none; so silence after the last word need
        not belong to it.
        """
        first = self.first - (rows == "emits")
        return weights[:, first : first + len(self.words) + 1, : self.positions]


def heard_recordings(
    model: Model, recordings: Sequence[Any], *, language: str | None = None
) -> list[HeardRecording]:
    """Get recordings as one model reads them, with the start token and the tokens of the text."""
    require_cross(model)
    if SOUNDS[0] not in takes(model.module):
        raise PromptError(
            f"{model.name} ({model.kind}) reads no sound; give a speech model that writes text, "
            "such as Whisper"
        )
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, so the text cannot be read")
    if language is not None:
        tokenizer = _speaking(tokenizer, language, model.name)
    heard = []
    for at, one in enumerate(given_recordings(recordings)):
        try:
            heard.append(_heard(model, one, tokenizer))
        except PromptError as error:
            raise PromptError(f"recording {at} ({one.name}): {error}") from error
    return heard


def _speaking(tokenizer: Any, language: str, name: str) -> Any:
    if not hasattr(tokenizer, "set_prefix_tokens"):
        raise OptionError(
            f"language={language!r}: the tokenizer of {name} has no tokens of languages; leave it "
            "out"
        )
    tokenizer = copy.deepcopy(tokenizer)
    try:
        tokenizer.set_prefix_tokens(language=language, task="transcribe")
        encoded_text(tokenizer, "")  # an unknown language is noticed here
    except (ValueError, KeyError) as error:
        raise OptionError(
            f"language={language!r}: {str(error).partition('.')[0]}; give a code such as en"
        ) from error
    return tokenizer


def _heard(model: Model, one: Utterance, tokenizer: Any) -> HeardRecording:
    extractor: Any = getattr(processor_of(model), "feature_extractor", model.processor)
    if isinstance(one.audio, (str, Path)):
        samples, rate = read_wav(Path(one.audio))
    else:
        samples, rate = np.asarray(one.audio, np.float32), None
    inputs = model.inputs(audio=[samples], sampling_rate=rate)
    hop = int(extractor.hop_length)
    most = inputs[SOUNDS[0]].shape[-1]
    frames = -(-len(samples) // hop)
    if frames > most:
        raise PromptError(
            f"it has {frames * hop / extractor.sampling_rate:.1f} s of sound, and {model.name} "
            f"reads {most * hop / extractor.sampling_rate:g} s; cut it into parts"
        )
    ids, words = words_of_tokens(tokenizer, one.text)
    start: Any = getattr(model.config, "decoder_start_token_id", None)
    if start is not None and (not ids or ids[0] != start):
        ids, words = (int(start), *ids), (NO_WORD, *words)
    spoken = [i for i, word in enumerate(words) if word != NO_WORD]
    first, last = spoken[0], spoken[-1]
    if first == 0:
        raise PromptError(
            f"{model.name} has no token before the text, so no row emits its first word; set "
            "decoder_start_token_id in its config"
        )
    spans = list(words[first : last + 1])
    for at in range(len(spans) - 2, -1, -1):  # a space of its own belongs to what follows
        spans[at] = spans[at + 1] if spans[at] == NO_WORD else spans[at]
    if set(spans) != set(range(len(one.text.split()))):
        raise PromptError(f"the tokenizer of {model.name} gives some words of the text no token")
    limit = getattr(model.config, "max_target_positions", None)
    if limit is not None and last + 1 > limit:
        raise PromptError(
            f"the text has {last + 1} tokens, and the decoder of {model.name} takes {limit}; cut "
            "the recording into parts"
        )
    inputs["decoder_input_ids"] = torch.tensor([ids[: last + 1]], device=model.device)
    return HeardRecording(
        one,
        inputs,
        first,
        tuple(spans),
        max(1, frames // FRAMES_PER_POSITION),
        FRAMES_PER_POSITION * hop / extractor.sampling_rate,
    )


def spoken_targets(
    model: Model, given: Sequence[HeardRecording]
) -> tuple[dict[str, Tensor], list[list[int]]]:
    """Return recordings as one batch, and the token that each decoder row should predict.

    The rows are padded behind their text, which a causal decoder does not see; rows of prompt
    tokens are -1.
    """
    ids = [one.inputs["decoder_input_ids"][0].tolist() for one in given]
    longest = max(map(len, ids))
    pad: Any = getattr(model.config, "pad_token_id", None) or 0
    batch = torch.tensor([row + [pad] * (longest - len(row)) for row in ids], device=model.device)
    sound = torch.cat([one.inputs[SOUNDS[0]] for one in given])
    targets = [
        [-1] * (one.first - 1) + row[one.first :] for one, row in zip(given, ids, strict=True)
    ]
    return {SOUNDS[0]: sound, "decoder_input_ids": batch}, targets
