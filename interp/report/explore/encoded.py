"""Answers of a session as data that can be written as JSON: prompts, heads, rules and rows."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.ties import ordered_by
from interp.draw.colours import palette
from interp.draw.sprite import data_url, thumbnails
from interp.heads.patterns.detail import LetterBlocks, terms_written
from interp.heads.patterns.result import View
from interp.heads.patterns.stack import Stack
from interp.report.atlas.profiles import shown_example
from interp.report.explore.queries_keys import TILE, KeptPrompt, Shares
from interp.report.view_texts import as_data, readings

if TYPE_CHECKING:
    from interp.profiles.on_prompt import PromptRules

HEADS = 8
"""Heads that are listed for a pair."""


def prompt(
    shown: View | KeptPrompt, number: int, tokens: Sequence[str], notes: Sequence[str]
) -> dict[str, Any]:
    """Return the stacks of a prompt with a picture of all heads; see `Session.prompt`."""
    if isinstance(shown, View):
        stacks = [_stack(s.name, dict(s.weights), s.queries, s.keys) for s in shown.stacks]
        texts, sides = readings(shown)
        for stack, of, reading in zip(stacks, shown.stacks, sides, strict=True):
            stack |= {"why": of.without_terms, "reading": reading}
        block, blocks = 1, [1]
    else:
        stacks = [
            _stack(name, {h: w for (s, h), w in shown.means.items() if s == name}, *texts)
            for name, texts in shown.texts.items()
        ]
        texts, block, blocks = [], shown.block, shown.blocks
    return {
        "prompt": number,
        "tokens": list(tokens),
        "stacks": stacks,
        "block": block,
        "blocks": blocks,
        "tile": TILE,
        "notes": list(notes),
        "texts": as_data(texts),
    }


def _stack(
    name: str, weights: dict[Head, Shares], queries: Sequence[str], keys: Sequence[str]
) -> dict[str, Any]:
    layers, across = _extent(weights)
    return {
        "name": name,
        "queries": list(queries),
        "keys": list(keys),
        "second": None,
        "tokens": [len(queries), len(keys)],
        "layers": layers,
        "across": across,
        "heads": [{"name": str(head), "layer": head.layer, "head": head.head} for head in weights],
        "picture_of_heads": heads_picture(weights),
        "same": list(queries) == list(keys),
        "why": "a long prompt's terms are not sent",
    }


def _extent(weights: dict[Head, Shares]) -> tuple[list[int], int]:
    """Return the layers, and the number of heads in a row."""
    return sorted({head.layer for head in weights}), 1 + max(head.head for head in weights)


def heads_picture(weights: dict[Head, Shares]) -> str:
    """Return a picture of all heads of a stack, layers down and heads across, as an address."""
    layers, across = _extent(weights)
    grid: Any = [[weights.get(Head(layer, h)) for h in range(across)] for layer in layers]
    shape = next(iter(weights.values())).shape
    return data_url(thumbnails(grid, shape, palette(False)))


def heads_on_pair(stack: Stack, query: int, key: int) -> list[list[Any]]:
    """Return names of the heads with the largest weights on a pair, with these weights."""
    shape = len(stack.queries), len(stack.keys)
    if not (0 <= query < shape[0] and 0 <= key < shape[1]):
        raise OptionError(
            f"query {query} and key {key}; there are queries 0 to {shape[0] - 1} and keys 0 to "
            f"{shape[1] - 1}"
        )
    rows = [[str(head), float(weights[query, key])] for head, weights in stack.weights.items()]
    return ordered_by(rows, lambda one: one[1])[:HEADS]


def pattern(stack: Stack, head: Head) -> dict[str, Any]:
    """Return all weights of a head as float32, with the terms of its scores."""
    store = LetterBlocks()
    fields = {"name": str(head), "block": 1, "bits": 32, "w": store.put(stack.weights[head])}
    if head in stack.terms:
        fields["terms"] = terms_written(stack.terms[head], store)
    return _inside(fields, store)


def _inside(item: Any, store: LetterBlocks) -> Any:
    """Return an item whose blocks of letters are in it, not beside it."""
    if not isinstance(item, dict):
        return item
    held = {key: _inside(value, store) for key, value in item.items() if key != "b"}
    return held | ({"d": store.blobs[item["b"]]} if "b" in item else {})


def tile(values: Shares, query: int, key: int, block: int) -> dict[str, Any]:
    """Return a tile as little-endian float32 in base64, row by row, with its first tokens."""
    content = base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()
    shape = list(values.shape)
    return {"query": query, "key": key, "block": block, "shape": shape, "float32": content}


EXAMPLES = 3  # of a head, below its row


def rules_answer(found: PromptRules, shown: View) -> dict[str, Any]:
    """Return the rules of a prompt with the pairs on which they fire; see `Session.rules`."""
    many = len(shown.stacks) > 1
    patterns = {
        (stack.name, head.layer, head.head): weights
        for stack in shown.stacks
        for head, weights in stack.weights.items()
    }
    scores = found.own_scores(patterns)
    for one in scores:
        one["heads"] = [
            [f"{stack}." * many + f"L{layer}H{head}", mass, guess]
            for (stack, layer, head), mass, guess in one["heads"]
        ]
    bits = [base64.b64encode(np.packbits(mask).tobytes()).decode() for mask in found.masks]
    rules = [{"name": one.name, "phrase": one.phrase} for one in found.rules]
    return {"rules": rules, "masks": bits, "own": scores}


def row_answer(
    found: PromptRules, shown: View, stack: str, head: Any, query: int, key: int
) -> dict[str, Any]:
    """Return what explains one row; see `Session.explain`."""
    of = shown.stack(stack)
    one = of.head(head)
    place = (stack, one.layer, one.head)
    answer = found.explain(place, of.weights[one], query, key)
    at, profile = found.places.get(place), found.profile
    if at is None or profile is None:
        return answer
    about = profile.descriptions[at]
    examples = profile.examples_of(about["name"], "surprise")[:EXAMPLES]
    return answer | {
        "sentence": about["sentence"],
        "examples": [shown_example(x) for x in examples],
    }
