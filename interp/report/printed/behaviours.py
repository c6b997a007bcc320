"""Several behaviours of one head, as text for its screen."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from interp.core.tokens import shown
from interp.report.printed.effects import signed_nats

WIDTH = 100
SHOWN = 6  # output tokens of a behaviour
BY = {
    "values": "clusters of the values that it reads",
    "matches": "clusters of the entries in which its queries and keys agree",
}


def behaviours(
    about: Mapping[str, Any], example: Callable[[Mapping[str, Any]], list[str]]
) -> list[str]:
    """Return lines on each behaviour of a head of several; none otherwise."""
    clusters = about.get("behaviours")
    if not clusters:
        return []
    heading = (
        f"{len(clusters['each'])} behaviours: {BY[clusters['by']]}, each with a rule of its own "
        f"beyond position, on documents that did not fit them ({clusters['n_edges']:,} sampled "
        "edges)"
    )
    lines = textwrap.wrap(heading, WIDTH, initial_indent="  ", subsequent_indent="  ")
    for one in clusters["each"]:
        words = (
            f"{percent_words(one['share'])} of its attention: beyond position, "
            f"{percent_words(one['beyond_position'])} of it goes {one['phrase']}"
        )
        lines += textwrap.wrap(words, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 6)
        if "loss_estimate" in one:
            lines.append(f"      loss without them (estimate) {signed_nats(one['loss_estimate'])}")
        for name in ("raises", "lowers"):
            each = [f"{shown(token)} {value:+.2f}" for token, value in one.get(name, ())[:SHOWN]]
            if each:
                lines += textwrap.wrap(
                    f"{name} {', '.join(each)}",
                    WIDTH,
                    initial_indent=" " * 6,
                    subsequent_indent=" " * 8,
                )
        lines += [line for x in one["examples"][:1] for line in example(x)]
    return [*lines, ""]


def percent_words(one: Mapping[str, float]) -> str:
    """Return a share with its interval in percent."""
    value, low, high = (100 * one[name] for name in ("value", "low", "high"))
    return f"{value:.0f} % [{low:.0f}, {high:.0f}]"
