"""Recordings with their text and the times of their words, from JSON Lines; read without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.core.errors import PromptError
from interp.core.prompt_file import read_objects

_FIELDS = ("audio", "text", "words")
_LIKE = '{"audio": "a.wav", "text": "the cat", "words": [["the", 0.12], ["cat", 0.34]]}'


@dataclass(frozen=True)
class Utterance:
    """A sound, the text that is spoken in it, and the start of its words where they are known.

    Args:
        audio: path of a .wav file (16 bits, one channel), or an array of samples at the rate that
            the model was trained on.
        text: the words, separated by spaces.
        words: some or all words of the text in their order, each with the seconds at which it
            starts; empty without gold times.
    """

    audio: Any
    text: str
    words: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if not self.text.split():
            raise PromptError("the text is empty; give at least one word")
        self.starts()

    @property
    def name(self) -> str:
        """Name of the file, or what the array is."""
        return Path(self.audio).name if isinstance(self.audio, (str, Path)) else "array"

    def starts(self) -> tuple[float, ...]:
        """Return the start of each word of the text in seconds, NaN where it is not given.

        Raises:
            PromptError: a word is not in the text (after the word before it), or a time is not a
                number of seconds or earlier than that of the word before it.
        """
        text = self.text.split()
        seconds = [math.nan] * len(text)
        at, before = 0, 0.0
        for word, start in self.words:
            if word not in text[at:]:
                after = f" after {text[at - 1]!r}" if at else ""
                raise PromptError(
                    f"the gold word {word!r} is not in the text{after}: {self.text!r}; give words "
                    "of the text in their order, spelled as there"
                )
            if not math.isfinite(start) or start < before:
                raise PromptError(
                    f"the gold word {word!r} starts at {start:g} s; expected a number of seconds, "
                    f"at least {before:g} like the word before it"
                )
            at = text.index(word, at)
            seconds[at] = before = float(start)
            at += 1
        return tuple(seconds)


def recording_of(row: Mapping[str, Any], folder: Path = Path()) -> Utterance:
    """Return the recording of an object with "audio", "text" and, where known, "words"."""
    if unknown := sorted(row.keys() - set(_FIELDS)):
        raise PromptError(f"unknown field {unknown[0]!r}; a recording has {', '.join(_FIELDS)}")
    for name in ("audio", "text"):
        if not isinstance(row.get(name), str):
            raise PromptError(f"{name!r} is missing or not a text; expected an object like {_LIKE}")
    words = row.get("words", [])
    fits = isinstance(words, list) and all(
        isinstance(x, list)
        and len(x) == 2
        and isinstance(x[0], str)
        and isinstance(x[1], (int, float))
        and not isinstance(x[1], bool)
        for x in words
    )
    if not fits:
        raise PromptError(
            f"'words' is not a list of words with their start in seconds; expected {_LIKE}"
        )
    return Utterance(folder / row["audio"], row["text"], tuple((w, float(s)) for w, s in words))


def read_recordings(path: str | Path) -> list[Utterance]:
    """Read a `.jsonl` file of recordings, one object a line; see `recording_of`.

    Paths of sounds are relative to the folder of the file.

    Raises:
        PromptError: the file is missing or empty, or a line is not a recording; the line is named.
    """
    return read_objects(path, _LIKE, lambda row: recording_of(row, Path(path).parent))


def given_recordings(recordings: Any) -> list[Utterance]:
    """Return recordings given as `Utterance`s or as mappings with their fields."""
    utterances = []
    every = recordings if isinstance(recordings, Sequence) else [recordings]
    for at, entry in enumerate(every):
        one = recording_of(entry) if isinstance(entry, Mapping) else entry
        if not isinstance(one, Utterance):
            raise PromptError(f"recording {at} is not an Utterance; give Utterance(audio, text)")
        utterances.append(one)
    if not utterances:
        raise PromptError("no recordings given")
    return utterances
