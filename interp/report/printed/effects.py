"""Effects and outputs of a head on a corpus, as text for its screen."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from interp.core.tokens import shown
from interp.profiles.ablation_look import KIND_PHRASES
from interp.profiles.sentence import ALPHA, nats

if TYPE_CHECKING:
    from interp.profiles.result import Profile

WIDTH = 100
_CAUSAL = {
    "explained_position": "position",
    "explained_rules": "rules",
    "explained_tokens": "tokens",
    "control_swapped_document": "swapped_document",
}
"""Rows of the screen with a causal share."""
_KEPT = "\u00a0"  # a space at which no line is broken


def causal_column(causal: Mapping[str, Any], metric: str) -> str:
    """Return the causal share beside a share of the pattern; empty where there is none."""
    one = causal.get(_CAUSAL.get(metric, ""))
    if one is None:
        return ""
    if math.isnan(one["value"]):
        return "kept: it has no effect"
    return f"kept {one['value']:5.2f} [{one['low']:.2f}, {one['high']:.2f}]"


def effects_line(found: Profile) -> list[str]:
    """Return a line on the heads whose ablation changes the loss; none without ablated heads."""
    about = found.provenance.get("effects", {})
    exact = [d["effect"] for d in found.descriptions if "loss" in d.get("effect", {})]
    if not exact:
        return []
    real = sum(one["p_corrected"] < ALPHA for one in exact)
    line = (
        f"{len(exact)} heads ablated on {about['ablation_documents']} documents: without {real} of "
        f"them the loss changes (p < {ALPHA:g}, Holm)"
    )
    return textwrap.wrap(line, WIDTH, initial_indent="  ", subsequent_indent="  ")


def matters(found: Profile, about: Mapping[str, Any]) -> list[str]:
    """Return lines on the loss without a head; none if it was not measured."""
    effect = about.get("effect")
    if not effect:
        return []
    facts = found.provenance["effects"]
    lines = [
        f"  loss without it (put at its mean), beside {facts['loss']:.3f} nats per {_per(effect)}"
    ]
    if "loss" in effect:
        p = f"p {effect['p_corrected']:.2g} (Holm)"
        lines.append(f"    {'measured by ablation':<40} {signed_nats(effect['loss'])}  {p}")
    for name, one in effect.get("by_kind", {}).items():
        lines.append(f"      {KIND_PHRASES[name]:<38} {signed_nats(one)}  n {one['n_tokens']:,}")
    lines.append(
        f"    {'estimate by gradient, first order':<40} {signed_nats(effect['loss_estimate'])}"
    )
    lines.append("  change of the predictions without it (KL divergence)")
    if "divergence" in effect:
        lines.append(f"    {'measured by ablation':<40} {signed_nats(effect['divergence'])}")
    size = signed_nats(effect["divergence_estimate"])
    lines.append(f"    {'estimate by gradient, second order':<40} {size}")
    return [*lines, ""]


def writes(about: Mapping[str, Any]) -> list[str]:
    """Return lines on what a head writes; none if it was not read."""
    mine = about.get("writes")
    if not mine:
        return []
    size = mine["size"]
    lines = [
        "  what it writes",
        f"    {'size, as a share of the stream':<40} {size['value']:.3f} "
        f"[{size['low']:.3f}, {size['high']:.3f}]",
        f"    {'direct effect on the next token':<40} {signed_nats(mine['direct'])}",
        f"    {'on the attended token, over visible':<40} {signed_nats(mine['copies'])} of logit",
    ]
    for name in ("raises", "lowers"):
        each = [f"{shown(token)} {value:+.2f}" for token, value in mine[name]]
        if each:
            whole = f"{name} " + ", ".join(one.replace(" ", _KEPT) for one in each)
            first, rest = " " * 4, " " * 11
            lines += [
                line.replace(_KEPT, " ")
                for line in textwrap.wrap(
                    whole, WIDTH, initial_indent=first, subsequent_indent=rest
                )
            ]
    return [*lines, ""]


def reads(about: Mapping[str, Any]) -> list[str]:
    """Return lines on the tokens that a head reads beyond position; none without any."""
    tables = about.get("reads", {})
    verbs = {"keys": "keys", "queries": "is off the sink at"}
    lines = []
    for name, words in verbs.items():
        if tables.get(name):
            each = ", ".join(
                f"{shown(x['token'])} {100 * x['share']:.0f} % ({100 * x['matched']:.0f} %)"
                for x in tables[name]
            )
            lines += textwrap.wrap(
                f"{words}: {each}", WIDTH, initial_indent="    ", subsequent_indent="      "
            )
    head = (
        "  tokens that it reads (other tokens of this frequency and place), judged on unseen text"
    )
    return [head, *lines, ""] if lines else []


def _per(effect: Mapping[str, Any]) -> str:
    return str(effect.get("per", "token"))


def signed_nats(one: Mapping[str, float]) -> str:
    """Return a number in nats with its sign and its interval."""
    size = max(abs(one["low"]), abs(one["high"]))
    value, low, high = (
        f"{'-' if one[name] < 0 else '+'}{nats(abs(one[name]), size)}"
        for name in ("value", "low", "high")
    )
    return f"{value} [{low}, {high}] nats"
