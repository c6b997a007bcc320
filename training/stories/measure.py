"""Counts and shares of the stories, and the page that states them (docs/stories.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from training.stories.markup import WORD, Annotation
from training.stories.papers import RECIPES
from training.stories.speech import TALK
from training.stories.texts import (
    RELATIONS,
    UNSEEN_COMBINATIONS,
    UNSEEN_TEXTS,
    Story,
    generator_hash,
    stories,
    story,
)
from training.stories.tokens import TEXTS, VOCABULARY, on_tokens, train_tokenizer
from training.stories.world import FAMILIES

MEASURED = 2000
"""Texts that the page is measured on, all of them unseen ones."""
SAMPLES = (336, 208, 66)
DETERMINED = {
    "form of a pronoun": "which of she, he, it and they, in which case",
    "number of a verb": "is or are, waits or wait: verbs with two forms",
    "closing mark": "the mark that ends a quotation or an aside",
    "word of a copy": "words of a verse, message or step that is repeated",
    "owner": "who has a thing, where a text asks for it or says so",
    "place": "where a thing is, or where its owner believes it to be",
    "sum": "the result of an addition or subtraction",
    "line or signature": "the first or last line of a list, and who signs a letter",
}
_ANSWERS = {
    "owner": "owner",
    "place": "place",
    "belief": "place",
    "sum": "sum",
    "first": "line or signature",
    "last": "line or signature",
    "writer": "line or signature",
}


def template_names() -> set[str]:
    """Return the names of all templates: sentences of families, lines of talks, and steps."""
    families = {f"{name}.{i}" for name, family in FAMILIES.items() for i in range(len(family))}
    return families.union(*({head, *rest} for head, rest in chain(TALK, RECIPES)))


def determined(annotation: Annotation) -> str | None:
    """Return what about the words of an annotation the world determines, one of `DETERMINED`."""
    label = annotation.label
    match annotation.relation:
        case "antecedent" if label in {"she", "he", "it", "they"}:
            return "form of a pronoun"
        case "subject" if label:
            return "number of a verb"
        case "mark":
            return "closing mark"
        case "copy":
            return "word of a copy"
        case "answer":
            return _ANSWERS[label]
    return None


def measured(n: int = MEASURED, seed: int = UNSEEN_TEXTS) -> dict[str, Any]:
    """Return the counts of n stories, in tokens of a tokenizer trained on others."""
    tokenizer = train_tokenizer()
    tokens, nats, points = 0, 0.0, Counter[str]()
    inside: Counter[str] = Counter()
    relations: Counter[str] = Counter()
    words: Counter[str] = Counter()
    any_kind = 0
    for made in stories(n, seed):
        offsets = tokenizer(made.text, return_offsets_mapping=True)["offset_mapping"]
        tokens += len(offsets) - 1  # without the first, `<s>`
        nats += made.nats
        words.update(word.lower() for word in WORD.findall(made.text) if word.isalpha())
        kinds: dict[str, set[int]] = {kind: set() for kind in DETERMINED}
        for annotation, at in zip(made.annotations, on_tokens(made, offsets), strict=True):
            relations[annotation.relation] += 1
            kind = determined(annotation)
            if kind:
                points[kind] += 1
                kinds[kind].update(at.tokens)
        inside.update({kind: len(at) for kind, at in kinds.items()})
        any_kind += len(set().union(*kinds.values()))
    return {
        "texts": n,
        "tokens": tokens,
        "words": sum(words.values()),
        "different words": len(words),
        "templates": len(template_names()),
        "nats per token": nats / tokens,
        "determined": any_kind / tokens,
        "kinds": {kind: (points[kind] / n, inside[kind] / tokens) for kind in DETERMINED},
        "relations": {name: relations[name] / n for name in RELATIONS},
    }


def shown(made: Story) -> Iterator[str]:
    """Yield a text, and what is annotated in it, one line for each kind of relation."""
    yield "```text\n" + made.text + "\n```"
    for relation in (
        "antecedent",
        "speaker",
        "subject",
        "distractor",
        "owner",
        "copy",
        "answer",
        "event",
    ):
        found = [_arrow(made, each) for each in made.of(relation)]
        if found:
            more = f" ... ({len(found)} in all)" if len(found) > 6 else ""
            yield f"- **{relation}**: {'; '.join(found[:6])}{more}"


def _arrow(made: Story, annotation: Annotation) -> str:
    text = " ".join(made.text[slice(*annotation.span)].split())
    text = text if len(text) < 34 else f"{text[:15]} ... {text[-15:]}"
    targets = " and ".join(made.text[slice(*target)] for target in annotation.targets)
    return f"`{text}` (character {annotation.span[0]}) to {targets} ({annotation.targets[0][0]})"


def page(counts: dict[str, Any], samples: Sequence[int] = SAMPLES) -> str:
    """Return the page in Markdown."""
    return "\n\n".join(_sections(counts, samples)) + "\n"


def _sections(counts: dict[str, Any], samples: Sequence[int]) -> Iterator[str]:
    yield "# Stories: texts whose truth is known"
    yield (
        "`training/stories` writes short English texts about a small world: people who have, give, "
        "sell, lose and look for things, talk, write letters and lists, count, and repeat verses. "
        "Every text comes from a seed, and every word carries its truth, which the generator notes "
        "when it writes: no parser is involved. The package is not installed; it runs from a "
        "checkout. `bundled:stories` was trained on such texts from nothing, and "
        "`bundled:stories-seed2` and `bundled:stories-raven` on further ones: `interp list models "
        "bundled:stories` has its card, and [how it grew](../benchmarks/stories_growth.md) is a "
        "page of its own."
    )
    yield (
        "```python\nfrom training.stories import story\n\nmade = story(7)\nprint(made.text)\n"
        'for each in made.of("antecedent"):\n'
        "    print(made.text[slice(*each.span)], each.targets)\n```"
    )
    yield (
        f"Figures: {counts['texts']:,} texts from seed {UNSEEN_TEXTS:,}, of generator "
        f"`{generator_hash()[:12]}`. Written by `python -m training.stories page`."
    )
    yield "## Counts"
    per_text = counts["tokens"] / counts["texts"]
    yield "| | |\n|---|---|\n" + "\n".join(
        f"| {name} | {value} |"
        for name, value in (
            ("templates (sentences, lines of talk, steps)", f"{counts['templates']:,}"),
            ("different words in these texts", f"{counts['different words']:,}"),
            ("words per text", f"{counts['words'] / counts['texts']:.0f}"),
            (f"tokens per text, of a vocabulary of {VOCABULARY:,}", f"{per_text:.0f}"),
            ("entropy of the choices, nats per token", f"{counts['nats per token']:.3f}"),
            ("share of tokens that the world determines", f"{counts['determined']:.3f}"),
        )
    )
    yield (
        "The *entropy of the choices* is the mean of minus the log-probability of all random "
        "choices that made a text, over its tokens. A text is a function of these choices, and "
        "several series of choices can lead to the same text, so this is an upper bound of the "
        "entropy of the texts, which is the least expected loss that a model can have: a model "
        "with a larger loss has something left to learn. The tokenizer is a "
        f"byte-level BPE trained on the {TEXTS:,} texts from seed 0; the first token `<s>` does "
        "not count."
    )
    yield "## What the world determines"
    yield (
        "At these points the text before leaves one possibility, given that a word of the kind "
        "stands there: whether a name or a pronoun follows is a choice, and which pronoun is not. "
        "*Share* counts every token that shares a character with such a word."
    )
    yield "| point | meaning | per text | share of tokens |\n|---|---|---|---|\n" + "\n".join(
        f"| {kind} | {meaning} | {counts['kinds'][kind][0]:.2f} | {counts['kinds'][kind][1]:.4f} |"
        for kind, meaning in DETERMINED.items()
    )
    yield "## Relations"
    yield (
        "An annotation is a span of characters, the spans that it leads to, and a label; "
        "`training.stories.tokens.on_tokens` carries it over to the tokens of any tokenizer."
    )
    yield "| relation | leads | per text |\n|---|---|---|\n" + "\n".join(
        f"| {name} | {meaning} | {counts['relations'][name]:.2f} |"
        for name, meaning in RELATIONS.items()
    )
    yield (
        "A pronoun stands only where one name fits it: one that its sentence has said, with no "
        "other of its gender and number in the sentence, or one of the sentence before, with no "
        "other of its kind in both. `I` and `you` lead to the last name of the speaker and the "
        "hearer. `it` without a referent, as in *it was Sunday*, has no annotation. A possessive "
        "refers to the subject before it."
    )
    yield "## What is held out"
    yield (
        f"- Seeds from 0 to {UNSEEN_TEXTS - 1:,} are for training.\n"
        f"- Seeds from {UNSEEN_TEXTS:,} are unseen texts of the same kind.\n"
        f"- Seeds from {UNSEEN_COMBINATIONS:,} are unseen combinations: the first thing of the "
        "text belongs to somebody who never has it in training, nor in unseen texts. A tenth of "
        "all pairs of a name and a thing are such combinations (`training.stories.world.held_out`)."
        " Templates are not held out."
    )
    yield "## Samples"
    for seed in samples:
        yield f"### Seed {seed}"
        parts = list(shown(story(seed)))
        yield parts[0]
        yield "\n".join(parts[1:])
