"""A tokenizer that knows every word of the built-in tasks."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from interp.causal.steering.in_context import FUNCTIONS
from interp.circuits.tasks import TASKS
from interp.circuits.tasks import docstring_pairs as docs
from interp.circuits.tasks import fact_pairs as facts
from interp.circuits.tasks import greater_than_pairs as years
from interp.circuits.tasks import ioi_pairs as ioi
from interp.circuits.tasks import subject_verb_pairs as verbs


def speller(
    *, names: bool = True, things: bool = True, begin: bool = False
) -> PreTrainedTokenizerFast:
    """Words with their space, numbers two digits at a time, as GPT-2 has it."""
    words = [w for t in (*ioi.TEMPLATES,) for w in t.split() if "{" not in w]
    words += [
        *(ioi.PLACES if things else ()),
        *(ioi.THINGS if things else ()),
        *years.NOUNS,
        *[w for t in TASKS["greater_than"].templates for w in t.split() if "{" not in w],
        *["I", "think", "that", "Every", "day", "def", "function", "self", "param"],
        *docs.NAMES,
        *docs.FUNCTIONS,
        *docs.WORDS,
    ]
    words += [w for p in (*verbs.NOUNS, *verbs.THINGS, *verbs.VERBS) for w in p] + [*verbs.LINKS]
    words += list(ioi.NAMES) if names else []
    words += [*facts.CAPITALS, *facts.CAPITALS.values(), "So", "In", "Here", "Now", "We"]
    words += [w for pairs in FUNCTIONS.values() for pair in pairs for w in pair]
    words += [w for t in TASKS["known_fact"].templates for w in t.split() if "{" not in w]
    plain = {w.strip(",.") for w in words}
    if not things:
        plain -= {*ioi.PLACES, *ioi.THINGS}
    pieces = [*plain, *(f" {w}" for w in plain), ",", "."]
    pieces += [f" {x}" for x in "()[]{}<>"]
    pieces += [f"{y:02d}" for y in range(100)] + [f" {y:02d}" for y in range(100)]
    ids = {"<s>": 0, "<unk>": 1} | {p: i + 2 for i, p in enumerate(sorted(set(pieces)))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    pattern = Regex(r" ?\d\d| ?[A-Za-z]+|[.,]| ?[()\[\]{}<>]")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, "isolated")
    if begin:
        tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>")
