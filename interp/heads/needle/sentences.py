"""Needles made of simple English sentences, for models with a tokenizer.

    ... The moon was bright. Mom gave the toy to Tom. Some ducks swam in the lake.
    completion   Mom gave the toy to                                      ->  Tom
    question     Question: To whom did Mom give the toy? Answer:          ->  Tom

A language model that does not answer questions or repeat random tokens can often complete a
sentence that it has read before. No filler sentence contains a name, so every copy has one source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import OptionError
from interp.heads.needle.instance import Instance
from interp.heads.needle.text import Needle, hidden_needles, text_tokens
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

# pairs of a sentence that ends in a name and a question about it
FRAMES = (
    ("Mom gave the toy to {}.", "To whom did Mom give the toy?"),
    ("The teacher showed the picture to {}.", "To whom did the teacher show the picture?"),
    ("Grandma gave the apple to {}.", "To whom did Grandma give the apple?"),
    ("The king gave the crown to {}.", "To whom did the king give the crown?"),
    ("The baker handed the bread to {}.", "To whom did the baker hand the bread?"),
    ("The man threw the ball to {}.", "To whom did the man throw the ball?"),
    ("The girl sent the letter to {}.", "To whom did the girl send the letter?"),
    ("The nurse brought the water to {}.", "To whom did the nurse bring the water?"),
    ("The farmer gave the egg to {}.", "To whom did the farmer give the egg?"),
    ("Dad handed the hammer to {}.", "To whom did Dad hand the hammer?"),
)
NAMES = ("Tom", "Lily", "Ben", "Sue", "Max", "Anna", "Sam", "Mia", "Tim", "Jack", "Lucy", "Bob")
FILLER = (
    "The sun was warm and the sky was blue.",
    "A little bird sat on a tree and sang a song.",
    "The grass was green and soft.",
    "There was a big red box near the door.",
    "The cake was sweet and the milk was cold.",
    "A small frog jumped into the pond.",
    "The wind was strong, so the leaves fell down.",
    "The house had a yellow roof.",
    "Some ducks swam in the lake.",
    "The kite flew high over the hill.",
    "The soup was hot and it smelled good.",
    "The bed was soft and warm.",
    "The flowers in the garden were pretty.",
    "It was time for lunch.",
    "The moon was bright.",
    "A train went over the old bridge.",
    "Snow lay on the road in the winter.",
    "The cat slept under the table.",
    "Two boats were on the river.",
    "The shop on the corner was closed.",
)

MOST = len(FRAMES) * len(NAMES)
"""Maximum number of different needles."""


@takes_model
def sentence_instances(
    model: Model,
    *,
    asked: bool = False,
    needles: int = 4,
    lengths: Iterable[int] = (24, 48),
    depths: Iterable[float] = (0.0, 0.5, 1.0),
    seed: int = 0,
    beyond: bool = False,
) -> list[Instance]:
    """Return every needle in a new haystack of every length, at every depth."""
    if not 1 <= needles <= MOST:
        raise OptionError(f"needles={needles}: there must be from 1 to {MOST} sentences")
    lengths = [int(x) for x in lengths]
    rng = np.random.default_rng(seed)
    frames, names = rng.permutation(len(FRAMES)), rng.permutation(len(NAMES))
    hidden, hays = [], []
    for which in range(needles + 1):  # one more for the question about something absent
        sentence, question = FRAMES[frames[which % len(FRAMES)]]
        # frames and names advance together, then shift by one, so that no pair repeats
        shift = which // math.lcm(len(FRAMES), len(NAMES))
        name = NAMES[names[(which + shift) % len(NAMES)]]
        hidden.append(Needle(sentence.format(name), question if asked else "", name))
        once = len(text_tokens(model, " " + " ".join(FILLER)))
        sentences = [
            FILLER[i]
            for _ in range(max([*lengths, 1]) // once + 3)
            for i in rng.permutation(len(FILLER))
        ]
        hays.append(text_tokens(model, " " + " ".join(sentences)))
    instances = hidden_needles(
        model, hidden, hays, lengths=lengths, depths=depths, beyond=beyond, stretch=True
    )
    return [x for x in instances if x.needle < needles]
