"""A cache of activations shows its patterns."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.heads.patterns.result import View, to_numpy
from interp.heads.patterns.stack import Stack
from interp.model.capture import ActivationCache, NotCaptured

if TYPE_CHECKING:
    import numpy as np

ITEMS = 12  # captured tensors that a notebook lists
WEIGHTS = 10_000_000  # shown without being asked; more take seconds to write


def view_of_cache(cache: ActivationCache, tokens: Sequence[str] | None, item: int) -> View:
    """The patterns of one prompt, stack by stack.

    Raises:
        NotCaptured: no patterns were captured.
        OptionError: no such prompt, or tokens of another number than positions.
    """
    patterns = cache.by_site("pattern")
    if not patterns:
        raise NotCaptured("no patterns were captured; add 'pattern' to the names")
    batch = len(next(iter(patterns.values())))
    if not -batch <= item < batch:
        raise OptionError(f"item {item}; the cache holds {batch} prompts, counted from 0")
    stacks: dict[str, dict[Head, np.ndarray]] = {}
    for (stack, layer), pattern in patterns.items():
        heads = cache.heads[stack, layer]
        mine = stacks.setdefault(stack, {})
        mine |= {Head(layer, h): to_numpy(pattern[item, i]) for i, h in enumerate(heads)}
    shown = []
    for name, weights in stacks.items():
        shapes = {w.shape for w in weights.values()}
        if len(shapes) > 1:
            raise OptionError(f"{name}: patterns of several shapes {sorted(shapes)}")
        [shape] = shapes
        queries, keys = (_labels(tokens, n, name) for n in shape)
        shown.append(Stack(name, weights, queries, keys))
    made = {"made_by": "interp.model.capture", "edits": list(cache.edits), "item": item}
    return View(tuple(shown), "Captured patterns", provenance=made)


def _labels(tokens: Sequence[str] | None, n: int, stack: str) -> tuple[str, ...]:
    if tokens is None:
        return tuple(f"[{i}]" for i in range(n))
    if len(tokens) != n:
        raise OptionError(f"{len(tokens)} tokens for the {n} positions of {stack}; give one each")
    return tuple(map(str, tokens))


def cache_html(cache: ActivationCache) -> str:
    """What was captured, and the patterns of the first prompt where they are among it."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(stack)}</td><td>{layer}</td>"
        f"<td>{escape(str(list(x.shape)))}</td></tr>"
        for (name, stack, layer), x in list(cache.values.items())[:ITEMS]
    )
    more = f"<p>and {len(cache) - ITEMS} more</p>" if len(cache) > ITEMS else ""
    table = (
        "<table><thead><tr><th>activation</th><th>stack</th><th>layer</th><th>shape</th></tr>"
        f"</thead><tbody>{rows}</tbody></table>{more}"
    )
    patterns = cache.by_site("pattern").values()
    if not patterns:
        return table
    if sum(x[0].numel() for x in patterns) > WEIGHTS:
        return f"<p>view() shows the patterns; there are more than {WEIGHTS:,} weights</p>{table}"
    try:
        return view_of_cache(cache, None, 0)._repr_html_() + table
    except OptionError as error:  # rows of several shapes, or too large for a notebook
        return f"<p>{escape(str(error))}</p>{table}"
