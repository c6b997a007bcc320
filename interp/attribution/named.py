"""Attribution methods by name with options, such as `rollout:residual=0.3`."""

from __future__ import annotations

from collections.abc import Iterable

from interp.attribution.declaration import AttributionMethod, BoundMethod
from interp.core.declaration import split_names
from interp.core.errors import OptionError
from interp.core.registry import ATTRIBUTION_METHODS


def choose_methods(methods: Iterable[str | AttributionMethod | BoundMethod]) -> list[BoundMethod]:
    """Return the methods with these names; one text may hold several, separated by commas.

    The name of a group, such as `token_importance`, stands for all methods of the group.

    Args:
        methods: names with options as on the command line, declared methods, or bound methods.

    Returns:
        Each method with its options.

    Raises:
        UnknownName: there is no such method or option; the message suggests the nearest name.
        OptionError: an option has an invalid value, a method is named twice, or none is named.
    """
    chosen: list[BoundMethod] = []
    for item in methods:
        if isinstance(item, BoundMethod):
            chosen.append(item)
        elif isinstance(item, AttributionMethod):
            chosen.append(item.bind())
        else:
            names = ATTRIBUTION_METHODS.expand(split_names(item))
            chosen += [ATTRIBUTION_METHODS.parse(name) for name in names]
    labels = [c.label for c in chosen]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise OptionError(f"a method is asked for twice: {', '.join(twice)}; name each method once")
    if not chosen:
        raise OptionError(
            "no attribution method is named; name at least one (`interp list methods` lists them)"
        )
    return chosen
