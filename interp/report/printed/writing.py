"""Texts that a model writes with heads unchanged and changed, side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.tokens import shown, visible

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows

MARK = "‖"
WIDTH = 46  # characters of a column; two fit a line of 100
PROMPTS = 60  # characters of a prompt that are repeated above its texts


def continuations_text(results: Sequence[ResultRows]) -> str:
    """Format the texts of every prompt and factor, with the first place where they part."""
    return "".join(f"{continuations_summary(result)}\n" for result in results)


def continuations_summary(found: ResultRows) -> str:
    """Return both texts of every prompt and factor, and where they part."""
    heads = ", ".join(found.steered)
    about = found.provenance
    lines = [f"{about.get('model_id') or about.get('model', '')}: {heads}"]
    lines += (line for row in found.wide().to_dict("records") for line in _row(found, row, heads))
    return "\n".join(lines)


def _row(found: ResultRows, row: dict[str, Any], heads: str) -> Iterator[str]:
    prompt = visible(row["prompt_text"].replace("\n", "⏎"))
    cut = prompt if len(prompt) <= PROMPTS else f"... {prompt[-PROMPTS:]}"
    yield f"  {row['prompt']}: {cut}"
    null, sets = row["null"], found.provenance["options"]["n_random"]
    of = f"{sets} random set{'s' * (sets != 1)} of heads"
    by_chance = "" if np.isnan(null) else f" ({of}: for {null:.3g})"
    at = None if np.isnan(row["position"]) else int(row["position"])
    turned = row["token"], row["changed_token"]
    yield f"  {parted_sentence(int(row['score']), at, *turned, by_chance)}"
    sides = [row["unchanged"], row["changed"]]
    if at is not None:
        start = _shared(*sides)
        sides = [f"{text[:start]}{MARK}{text[start:]}" for text in sides]
    columns = (
        [name, *_wrapped(text)]
        for name, text in zip(("unchanged", f"{heads} x {row['factor']:g}"), sides, strict=True)
    )
    for left, right in zip_longest(*columns, fillvalue=""):
        yield f"    {left:<{WIDTH}}  {right}".rstrip()


def _wrapped(text: str) -> Iterator[str]:
    for line in visible(text).split("\n"):
        yield from textwrap.wrap(line, WIDTH) or [""]


def _shared(left: str, right: str) -> int:
    """Return the number of characters with which two texts begin alike."""
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def parted_sentence(
    alike: int, position: int | None, token: str, changed_token: str, by_chance: str = ""
) -> str:
    """Say where two texts part, after how many new tokens, and what stands there in each."""
    if position is None:
        return f"The texts are the same, {alike} new tokens{by_chance}."
    return (
        f"The texts are alike for {alike} new tokens{by_chance}; at position {position} "
        f"“{shown(token)}” becomes “{shown(changed_token)}”."
    )
