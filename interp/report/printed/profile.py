"""Profiles as text: counts and shares by layer, sentences, and one screen on one head."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.ties import ordered_by
from interp.core.tokens import shown
from interp.profiles.dimensions import METRICS
from interp.profiles.examples import KINDS
from interp.report.printed.effects import (
    causal_column,
    effects_line,
    matters,
    reads,
    signed_nats,
    writes,
)
from interp.report.printed.text_lines import text_lines

if TYPE_CHECKING:
    import pandas as pd

    from interp.profiles.result import Profile

WIDTH = 100
PHRASE = 36  # columns of a rule's words
STATUS = {
    "described": "described (.5 of the pattern or more)",
    "in part": "described in part (.25 or more)",
    "not described": "not described",
    "even": "attending evenly",
    "on the sink": "on the sink alone",
}
RUNGS = ("offset", "position", "list", "rules", "tokens")


def profile_text(results: Sequence[Profile], *, top: int = 8) -> str:
    """Format counts, shares by layer, and the sentences of the heads whose lists say most.

    Args:
        results: the profiles.
        top: number of heads to print; 0 for all.
    """
    return "\n".join(_one(result, top) for result in results)


def _one(found: Profile, top: int) -> str:
    about = found.provenance
    counts = found.counts()
    lines = [
        f"{about['model_id']} on {about['corpus']}: {about['documents_used']:,} of "
        f"{about['documents_read']:,} documents, {about['queries']:,} queries; first token: "
        f"{about['first_token']}",
        *text_lines(about),
        *_clusters(about),
        "  " + ", ".join(f"{n} {STATUS[name]}" for name, n in counts.items()),
        *effects_line(found),
        "  share of the pattern explained on documents that did not fit it, mean of heads",
    ]
    frame = found.explained().reset_index()
    many = len({*frame["stack"]}) > 1
    lines.append("  layer    nats  " + "  ".join(f"{rung:>8}" for rung in RUNGS))
    for row in frame.to_dict("records"):
        name = f"{row['stack']} {row['layer']}" if many else str(row["layer"])
        shares = "  ".join(f"{row[f'explained_{rung}']:8.2f}" for rung in RUNGS)
        lines.append(f"  {name:<6} {row['pattern']:6.2f}  {shares}")
    order = _ordered(found)
    chosen = order[:top] if top else order
    lines.append("")
    for row in chosen:
        lines += text_block(f"{row['name']}  ", row["sentence"])
    if len(order) > len(chosen):
        lines.append(f"  ({len(order) - len(chosen)} further heads: --top 0, or interp head)")
    return "\n".join([*lines, ""])


def _clusters(about: Mapping[str, Any]) -> list[str]:
    """Return a line on copies, if the documents are not all distinct."""
    near = about["documents_used"] - about["distinct_documents"]
    if not near and not about["exact_copies"]:
        return []
    return [
        f"  {about['distinct_documents']:,} distinct documents: {about['exact_copies']:,} exact "
        f"copies were left out, {near:,} near-duplicates count with their originals"
    ]


def _ordered(found: Profile) -> list[Mapping[str, Any]]:
    """Return the heads, the largest share beyond position first."""
    frame = found.to_pandas()
    frame = frame[frame["metric"] == "list_beyond_position"]
    keys = zip(frame["stack"], frame["layer"], frame["head"], strict=True)
    gain = dict(zip(keys, np.nan_to_num(np.asarray(frame["score"], float), nan=-1.0), strict=True))
    rank = {name: at for at, name in enumerate(STATUS)}
    return sorted(
        found.descriptions,
        key=lambda d: (rank[d["status"]], -gain.get((d["stack"], d["layer"], d["head"]), -1)),
    )


def text_block(first: str, text: str) -> list[str]:
    """Return a paragraph in lines that begin below its first words."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {first}", subsequent_indent=" " * (2 + len(first))
    )


def head_text(found: Profile, head: str, *, examples: int = 2, full: bool = True) -> str:
    """Format one screen on one head: its sentence and examples, and in full every number.

    Args:
        found: the profile.
        head: name of the head, such as L5H4.
        examples: examples of the strongest and of the most surprising queries, each; one of random
            queries is added.
        full: with rungs, controls, entries, behaviours, effects and what it reads and writes.
    """
    about = found.description(head)
    model, corpus = found.provenance["model_id"], found.provenance["corpus"]
    lines = [f"{head} of {model} on {corpus}: {STATUS[about['status']]}"]
    lines += [*text_lines(found.provenance, full=full), ""]
    lines += [*text_block("", about["sentence"]), ""]
    if full:
        lines += _rungs(found, about)
        lines += _entries(about)
        lines += behaviours(about, example_lines)
        lines += reads(about)
        lines += _dimensions(found, about)
        lines += matters(found, about)
        lines += writes(about)
    for kind, n in (("strongest", examples), ("uniform", 1), ("surprise", examples)):
        every = found.examples_of(head, kind)
        middle = len(every) // 2
        picked = every[middle : middle + n] if kind == "uniform" else every[:n]
        if picked and full:
            lines.append(f"  {kind}: {KINDS[kind]}")
        lines += [
            line for one in picked for line in example_lines(one, "" if full else f"{kind}: ")
        ]
    return "\n".join([*lines, ""])


def _numbers_of(found: Profile, about: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of one head, by metric."""
    frame = found.to_pandas()
    mine = (
        (frame["stack"] == about["stack"])
        & (frame["layer"] == about["layer"])
        & (frame["head"] == about["head"])
    )
    return frame[mine].set_index("metric")


def _dimensions(found: Profile, about: Mapping[str, Any]) -> list[str]:
    """Return a line on the dimensions of what a head reads and writes; none where not known."""
    mine = _numbers_of(found, about)
    numbers = []
    for metric, (name, _) in METRICS.items():
        if metric in mine.index:
            row = mine.loc[metric]
            by = "" if np.isnan(row["null"]) else f" (by position {row['null']:.1f})"
            numbers.append(f"{name} {row['score']:.1f} [{row['low']:.1f}, {row['high']:.1f}]{by}")
    if not numbers:
        return []
    first = "dimensions that hold 90 % of the variance, of those it attends to: "
    return [
        *textwrap.wrap(
            first + ", ".join(numbers), WIDTH, initial_indent="  ", subsequent_indent="    "
        ),
        "",
    ]


def _rungs(found: Profile, about: Mapping[str, Any]) -> list[str]:
    mine = _numbers_of(found, about)
    causal = about.get("effect", {}).get("causal", {})
    lines = ["  share of the pattern explained, on documents that did not fit it"]
    if causal:
        lines[0] += "; and share of its effect kept*"
    names = {
        "explained_offset": "distance alone",
        "explained_position": "position",
        "explained_list": "the list",
        "control_list_other_head": "control: another head's list",
        "control_list_swapped_document": "control: the list on another document",
        "explained_rules": f"all {len(found.provenance['rules'])} rules together",
        "explained_tokens": "rules and the two tokens",
    }
    for metric, name in names.items():
        if metric not in mine.index:
            continue
        row = mine.loc[metric]
        bar = "#" * round(30 * min(max(float(np.nan_to_num(row["score"])), 0.0), 1.0))
        ends = f"[{row['low']:.2f}, {row['high']:.2f}]"
        beside = causal_column(causal, metric) if causal else bar
        lines.append(f"    {name:<40} {row['score']:5.2f} {ends:<15} {beside}".rstrip())
    if causal:
        lines += [
            "    * causal share: of the KL divergence of the predictions, head at its mean,",
            "      what is gone with the description in place of its pattern",
        ]
    return [*lines, ""]


def _entries(about: Mapping[str, Any]) -> list[str]:
    """Return the list of a head as a table."""
    if not (rows := about["entries"]):
        return []
    width = min(max(len(one["phrase"]) for one in rows), PHRASE)
    lines = [
        f"  {'entry':<{width}}  {'attention':>9}  {'by position':>11}  {'lift':>4}  {'nats':>5}  "
        "adds*"
    ]
    for one in rows:
        first, *rest = textwrap.wrap(one["phrase"], width)
        share, guess = one["share"]["value"], one["position"]
        lines.append(
            f"  {first:<{width}}  {100 * share:7.1f} %  {100 * guess:9.1f} %  "
            f"{_lift(share, guess):>4}  {one['nats']:+5.2f}  {_interval(one['gain'])}"
        )
        lines += [f"    {line}" for line in rest]
    return [
        *lines,
        "  attention: on keys of this entry and of none before it, of what is off the sink",
        "  * share of the pattern that is lost without this entry, on unseen documents",
        "",
    ]


def _lift(share: float, guess: float) -> str:
    """Return how many times the share by position a share is."""
    return f"{share / guess:.1f}" if guess > 0 else "-"


def _interval(one: Mapping[str, float] | None) -> str:
    if one is None or np.isnan(one["value"]):
        return "-"
    return f"{one['value']:+.2f} [{one['low']:+.2f}, {one['high']:+.2f}]"


def example_lines(one: Mapping[str, Any], first: str = "") -> list[str]:
    """Format the context with the query in >< and the keys in [], the largest with its share."""
    keys = dict(one["keys"])
    largest = ordered_by(keys, keys.__getitem__)[0] if keys else None
    parts = []
    for at, token in enumerate(one["tokens"]):
        text = shown(token)
        if at in one["gaps"]:
            parts.append(" ... ")
        if at == largest:
            text = f"[{text}|{100 * keys[at]:.0f} %]"
        elif at in keys:
            text = f"[{text}]"
        parts.append(f">{text}<" if at == one["query"] else text)
    place = f" ({one['document']})"
    return textwrap.wrap(
        f"{first}{''.join(parts).strip()}{place}",
        WIDTH,
        initial_indent="  " if first else "    ",
        subsequent_indent="      ",
    )


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
