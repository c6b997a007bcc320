"""Display of the patterns in a cache of activations."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.draw.page import table
from interp.heads.patterns.result import View, to_numpy
from interp.heads.patterns.stack import Stack
from interp.model.capture import ActivationCache, NotCaptured

if TYPE_CHECKING:
    import numpy as np

ITEMS = 12  # of the list of captured tensors in a notebook
WEIGHTS = 10_000_000  # displayed by default; writing more takes seconds


def view_of_cache(cache: ActivationCache, tokens: Sequence[str] | None, item: int) -> View:
    """Return the patterns of one prompt as a view.

    Raises:
        NotCaptured: No patterns were captured.
        OptionError: The prompt does not exist, or the numbers of tokens and positions differ.
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
    provenance = {"made_by": "interp.model.capture", "edits": list(cache.edits), "item": item}
    return View(tuple(shown), "Captured patterns", provenance=provenance)


def _labels(tokens: Sequence[str] | None, n: int, stack: str) -> tuple[str, ...]:
    if tokens is None:
        return tuple(f"[{i}]" for i in range(n))
    if len(tokens) != n:
        raise OptionError(f"{len(tokens)} tokens for the {n} positions of {stack}; give one each")
    return tuple(map(str, tokens))


def cache_html(cache: ActivationCache) -> str:
    """Return a list of the captured tensors, and the patterns of the first prompt."""
    rows = [
        (name, stack, layer, str(list(x.shape)))
        for (name, stack, layer), x in list(cache.values.items())[:ITEMS]
    ]
    more = f"<p>and {len(cache) - ITEMS} more</p>" if len(cache) > ITEMS else ""
    listed = table(["activation", "stack", "layer", "shape"], rows, headed=False) + Markup(more)
    patterns = cache.by_site("pattern").values()
    if not patterns:
        return str(listed)
    if sum(x[0].numel() for x in patterns) > WEIGHTS:
        return f"<p>view() shows the patterns; there are more than {WEIGHTS:,} weights</p>{listed}"
    try:
        return view_of_cache(cache, None, 0)._repr_html_() + str(listed)
    except OptionError as error:  # patterns of several shapes, or too large for a notebook
        return f"<p>{escape(str(error))}</p>{listed}"
