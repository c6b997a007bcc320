"""Attribution methods by the names that people write: `rollout:residual=0.3`."""

from __future__ import annotations

from collections.abc import Iterable

from interp.attribution.declaration import AttributionMethod, BoundMethod
from interp.core.declaration import split_names
from interp.core.errors import OptionError
from interp.core.registry import ATTRIBUTION_METHODS


def choose_methods(given: Iterable[str | AttributionMethod | BoundMethod]) -> list[BoundMethod]:
    """Methods as the command line writes them, each once; commas may stand between.

    Raises:
        UnknownName: no such method or option, with the nearest.
        OptionError: a value that does not fit, a method asked for twice, or none at all.
    """
    found: list[BoundMethod] = []
    for item in given:
        if isinstance(item, BoundMethod):
            found.append(item)
        elif isinstance(item, AttributionMethod):
            found.append(item.bind())
        else:
            found += [ATTRIBUTION_METHODS.parse(text) for text in split_names(item)]
    labels = [c.label for c in found]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise OptionError(f"a method is asked for twice: {', '.join(twice)}; name it once")
    if not found:
        raise OptionError("no attribution method is named; `interp methods` lists them")
    return found
