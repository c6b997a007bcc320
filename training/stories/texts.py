"""Stories by their seeds: `story(7)` is the same text wherever it is made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from interp.core.errors import OptionError
from training.stories.markup import Annotation
from training.stories.plot import Plot

UNSEEN_TEXTS = 2**32
"""First seed of texts that no training reads; training takes seeds below."""
UNSEEN_COMBINATIONS = 2**33
"""First seed of texts whose first owner has a thing that this person never has in training."""
RELATIONS = {
    "antecedent": "from a pronoun to the last name of each person or thing that it stands for",
    "speaker": "from the words between quotation marks, or of a letter, to the name of who says so",
    "subject": "from a finite verb to its subject: a name, a pronoun or the noun that governs it",
    "distractor": "from a verb with two forms to the nouns between the subject and the verb",
    "owner": "from the noun of a thing to the last name of who owns it when it is mentioned",
    "mark": "from a closing quotation mark or bracket to the opening one",
    "copy": "from a word of a repeated passage to the same word where the passage stood first",
    "answer": "from an owner, place, sum, line or signature to the words that determine it",
    "mention": "from a name or thing to its mention before; the first one leads nowhere",
    "event": "from a sentence to who gains or loses a thing in it, and to the thing",
    "sentence": "the characters of a sentence, or of a line of a list; leads nowhere",
    "clause": "the words of a clause; leads nowhere",
}
_SOURCES = """
    acts choices entities markup papers plot sentences speech texts words world writer written
"""


@dataclass(frozen=True, slots=True)
class Story:
    """A text with what is true of its words.

    Attributes:
        text: the characters, all of them ASCII.
        annotations: relations between spans of characters, in the order of their spans.
        nats: minus the log-probability of the choices that made the text; that of the text is less.
        templates: names of the templates that were used.
    """

    seed: int
    text: str
    annotations: tuple[Annotation, ...]
    nats: float
    templates: frozenset[str]

    def of(self, relation: str) -> list[Annotation]:
        """Return the annotations of one relation."""
        return [each for each in self.annotations if each.relation == relation]


def story(seed: int) -> Story:
    """Return the story of a seed.

    Args:
        seed: a whole number from 0; the constants `UNSEEN_TEXTS` and `UNSEEN_COMBINATIONS` say
            which ones a training leaves out.

    Raises:
        OptionError: the seed is not a whole number from 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise OptionError(f"a story has no seed {seed!r}; give a whole number from 0")
    plot = Plot(seed, unseen_combinations=seed >= UNSEEN_COMBINATIONS)
    plot.tell()
    writer = plot.writer
    annotations = sorted(writer.annotations, key=lambda each: (each.span, each.relation))
    return Story(seed, writer.text, tuple(annotations), writer.nats, frozenset(writer.templates))


def stories(n: int, seed: int = 0) -> Iterator[Story]:
    """Return the stories of n seeds that follow each other.

    Args:
        n: number of stories.
        seed: the first seed.

    Raises:
        OptionError: there are no stories to make, or the seed is not a whole number from 0.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise OptionError(f"{n!r} stories cannot be made; give a whole number from 1")
    story(seed)
    return (story(each) for each in range(seed, seed + n))


@cache
def generator_hash() -> str:
    """Return the sha256 of the source that makes the texts, which a tokenizer stores."""
    here = Path(__file__).parent
    sources = [(here / f"{name}.py").read_text(encoding="utf-8") for name in _SOURCES.split()]
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()
