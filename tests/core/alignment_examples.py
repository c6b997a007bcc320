"""One example per result class of `interp.alignment` and `interp.policies`, by its full name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

import interp
from interp import alignment, policies
from interp.alignment.result import HeadAlignments
from interp.core.result import Result
from interp.core.result_rows import ResultRows
from interp.planted.with_sound import spoken_words


@functools.cache
def reordering() -> interp.Model:
    return interp.load("bundled:reorder")


@functools.cache
def word_alignments() -> HeadAlignments:
    return alignment.word_alignment(reordering(), alignment.made_sentence_pairs(8), n_random=9)


def both_ways() -> Result:
    """Twice the same result, with sources and targets swapped in the second."""
    one = word_alignments()
    size = max(one.links.shape[2], *(int(g[:, 0].max()) + 1 for g in one.gold))
    links = np.full((1, len(one.gold), size), -1)
    for at, gold in enumerate(one.gold):
        links[0, at, gold[:, 0]] = gold[:, 1]
    turned = tuple(np.array(sorted(g[:, [1, 0, 2]].tolist())) for g in one.gold)
    back = replace(one.best_head(), links=links, gold=turned)
    return alignment.both_directions(one, back)


def speech_times() -> ResultRows:
    import zoo

    family = zoo.FAMILIES["whisper"]
    speech = interp.load(family.model("eager"), name="whisper")
    inputs = family.inputs(batch=4)
    times = [[0.02 * (t + 1) for t in range(inputs["decoder_input_ids"].shape[1])]] * 4
    return alignment.time_alignment(speech, inputs, times, width=3)


def spoken_times() -> ResultRows:
    planted = spoken_words()
    speech = interp.load(planted.model, name="spoken")
    speech.tokenizer, speech.processor = planted.processor.tokenizer, planted.processor
    [(sound, words)] = planted.sounds(1)
    given = alignment.Utterance(sound, " ".join(word for word, _ in words), tuple(words))
    return alignment.word_times(speech, [given], heads=["L1H2", "L1H0"])


def pairs_of_tensors() -> dict[str, torch.Tensor]:
    pairs = alignment.made_sentence_pairs(4)
    return dict(reordering().inputs(alignment.encode_pairs(reordering(), pairs).prompts))


def mass_of_sources() -> ResultRows:
    inputs = pairs_of_tensors()
    keys = inputs["input_ids"].shape[1]
    return alignment.source_mass(reordering(), inputs, [[0] * 2 + [1] * (keys - 2)] * 4)


def drift() -> ResultRows:
    inputs = pairs_of_tensors()
    places = [[float(t) for t in range(3)]] * 4
    return alignment.attention_drift(reordering(), inputs, places)


ALIGNMENT_EXAMPLES: dict[str, Callable[[], Result]] = {
    "AttentionDrift": drift,
    "BothDirections": both_ways,
    "interp.alignment.result.HeadAlignments": word_alignments,
    "interp.alignment.pictures.PairAlignment": lambda: alignment.pair_alignment(
        reordering(), alignment.made_sentence_pairs(1)[0], "L1H0"
    ),
    "SourceMass": mass_of_sources,
    "TimeAlignments": speech_times,
    "WordTimes": spoken_times,
    "Simultaneous": lambda: policies.simultaneous(
        reordering(), alignment.made_sentence_pairs(2), "wait-k", values=[2]
    ),
    "TranslationHeads": lambda: alignment.translation_heads(
        reordering(), alignment.made_sentence_pairs(4), null=False
    ),
}
