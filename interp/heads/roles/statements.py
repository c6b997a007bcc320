"""Sentences on the roles of one model: what was found, and what was looked for and not found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp.core.columns import score_text, with_error
from interp.core.intervals import TOO_FEW
from interp.core.order import first
from interp.core.registry import METRICS
from interp.core.ties import either, ordered_by, tied_with
from interp.heads.roles.decide import base_name
from interp.heads.roles.declaration import Need, Role
from interp.heads.roles.declared import ROLES, role_named
from interp.heads.roles.result import HeadRole, HeadRoles
from interp.heads.special import APART, LEVEL, catalogue_of, judged_rows

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.table import HeadTable

NAMED = 4  # heads named in a sentence
OTHERS = 4  # further metrics named in the last sentence


@dataclass(frozen=True)
class Statement:
    """One sentence about a role, or about metrics that decide none.

    Args:
        role: id of the role; None for metrics that decide none.
        text: the sentence; it names heads, score, interval and null.
        heads: labels of the heads it is about, the strongest first; of nothing found, the best one
            and those tied with it.
        metric: the metric of the numbers.
        score, low, high, null: of the first head; NaN where there is none.
        found: True if heads were found with significance.
        judged: False if there is no null, so that nothing is claimed.
    """

    role: str | None
    text: str
    heads: tuple[str, ...]
    metric: str
    score: float = math.nan
    low: float = math.nan
    high: float = math.nan
    null: float = math.nan
    found: bool = False
    judged: bool = True


def statements(
    table: HeadTable,
    found: HeadRoles,
    declared: Sequence[Role] = ROLES,
    *,
    named: int = NAMED,
) -> tuple[Statement, ...]:
    """Get a sentence per role for which the table of one model has a score, and one on the rest."""
    names = HeadNames(table.stacks, named)
    ranges = METRICS.ranges()
    known = {m: ranges.get(base_name(m), (None, None)) for m in table.metrics}
    frame = judged_rows(table, known)
    ends = {metric: origin.get("end") for (_, metric), origin in table.provenance.items()}
    sentences = [_of_role(role, frame, found, ends, names) for role in declared]
    deciding = {need.metric for role in declared for need in role.needs}
    rest = _others(table, deciding, names)
    return tuple(one for one in [*sentences, rest] if one is not None)


@dataclass(frozen=True)
class HeadNames:
    """Labels of heads, with the stack where there are several.

    Args:
        stacks: the stacks of the model.
        named: number of heads to name in a list.
    """

    stacks: tuple[str, ...]
    named: int = NAMED

    def __call__(self, stack: str, layer: int, head: int) -> str:
        """Return L5H4, or `encoder L5H4` where the model has several stacks."""
        label = f"L{layer}H{head}"
        return label if len(self.stacks) == 1 else f"{stack} {label}"

    def of(self, one: Any) -> str:
        """Return the label of anything with stack, layer and head."""
        return self(one.stack, int(one.layer), int(one.head))


def joined_names(names: Iterable[str], limit: int = NAMED) -> str:
    """Join names, with the number of those that are left out."""
    names = list(names)
    more = len(names) - limit
    if more > 0:
        return f"{', '.join(names[:limit])} and {more} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def in_order(
    role: Role, frame: pd.DataFrame, heads: Sequence[HeadRole], ends: Mapping[str, str | None]
) -> list[HeadRole]:
    """Get the heads of a role in the displayed order of the first of its scores that found them."""
    left = {(x.stack, x.layer, x.head): x for x in heads}
    out: list[HeadRole] = []
    for need in role.needs:
        for metric in (m for m in frame["metric"].unique() if base_name(m) == need.metric):
            rows: Any = frame[frame["metric"] == metric]
            ordered = first(rows, len(rows), "end", ends.get(metric))
            for place in ordered[["stack", "layer", "head"]].itertuples(index=False, name=None):
                head = left.get(place)
                if head is not None and any(
                    e.kind == "decides" and e.role == role.id and e.metric == metric
                    for e in head.evidence
                ):
                    out.append(left.pop(place))
    return [*out, *left.values()]


def _of_role(
    role: Role,
    frame: pd.DataFrame,
    found: HeadRoles,
    ends: Mapping[str, str | None],
    names: HeadNames,
) -> Statement | None:
    """Return the sentence about one role; None if no score speaks for it."""
    heads = [x for x in found.assigned if role.id in x.roles]
    if heads:
        return _of_heads(role, in_order(role, frame, heads, ends), names)
    deciding = [need.metric for need in role.needs if need.decides]
    scored = [m for m in frame["metric"].unique() if base_name(m) in deciding]
    if not scored:
        return None
    rows: Any = frame[frame["metric"].isin(scored)]
    judged: Any = rows[rows["judged"]]
    some = judged if len(judged) else rows
    rank = {name: at for at, name in enumerate(deciding)}
    need_of = {need.metric: need for need in role.needs}
    metric = min(some["metric"].unique(), key=lambda m: rank[base_name(m)])
    sorted_rows = some[some["metric"] == metric]
    sorted_rows = first(sorted_rows, len(sorted_rows), "score")
    row = sorted_rows.iloc[0]
    tied = sorted_rows.iloc[tied_with(sorted_rows["score"], 0)][["stack", "layer", "head"]]
    labels = [names(*place) for place in tied.itertuples(index=False, name=None)]
    head = either(labels)
    low, high = float(row["low"]), float(row["high"])
    shown = _score(row["score"], low, high, row["why_no_interval"])
    about = {
        "role": role.id,
        "heads": tuple(labels),
        "metric": str(metric),
        "score": float(row["score"]),
        "low": low,
        "high": high,
        "null": float(row["null"]),
    }
    if not len(judged):
        text = (
            f"{role.noun.capitalize()}s: not judged, because the scores have no null; the highest "
            f"{metric} is {head} {shown}."
        )
        return Statement(text=text, judged=False, **about)
    but = [x for x in found.assigned if role.id in x.yielded and x.roles]
    score = f"{head} {shown}, null {_null(row)}"
    if but:
        also = dict.fromkeys(role_named(r).name for x in but for r in x.roles)
        who = joined_names((names.of(x) for x in but), names.named)
        of = f"the {joined_names(also)} head{'s' * (len(but) != 1)} {who}"
        text = f"No {role.noun} other than {of}; highest {metric}: {score}."
        return Statement(text=text, **about)
    sure = row["p"] < LEVEL / len(judged) and row["score"] > row["null"]
    small = _too_small(need_of[base_name(str(metric))], row) if sure else ""
    against = [
        x
        for x in found.assigned
        for e in x.evidence
        if e.role == role.id and e.kind == "contradicts"
    ]
    if against:
        who = joined_names(dict.fromkeys(map(names.of, against)), names.named)
        small = f"; a causal check contradicts {who}"
    return Statement(text=f"No {role.noun}: best {metric} {score}{small}.", **about)


def _too_small(need: Need, row: Any) -> str:
    """Return why a score that is significantly above its null gives no role."""
    if row["score"] - row["null"] < need.least:
        return f"; above its null, but by less than the {need.least_text} that the role asks for"
    return (
        f"; above its null, but by less than {need.share:.0%} of the way to the end of the range "
        f"and by less than {APART:g} spreads of the other heads"
    )


def _of_heads(role: Role, heads: Sequence[HeadRole], names: HeadNames) -> Statement:
    """Return the sentence about the heads of a role that was found."""
    rank = {need.metric: at for at, need in enumerate(role.needs)}
    deciding = (e for e in heads[0].evidence if e.role == role.id and e.kind == "decides")
    one = min(deciding, key=lambda e: rank.get(base_name(e.metric), 0))
    labels = tuple(map(names.of, heads))
    metrics = list(
        dict.fromkeys(
            base_name(e.metric)
            for x in heads
            for e in x.evidence
            if e.role == role.id and e.kind in ("decides", "supports")
        )
    )
    by = f" ({', '.join(metrics)})" if len(metrics) > 1 else ""
    count = f"{len(heads)} {role.noun}{'s' * (len(heads) != 1)}{by}"
    null = f", null {with_error(one.null, one.null_sem)}" if not math.isnan(one.null) else ""
    score = _score(one.score, one.low, one.high, one.why_no_interval)
    text = f"{count}: {labels[0]} {one.metric} {score}{null}"
    if len(labels) > 1:
        text += f"; also {joined_names(labels[1:], max(names.named - 1, 1))}"
    checks = dict.fromkeys(
        e.text for x in heads for e in x.evidence if e.role == role.id and e.kind == "confirms"
    )
    text = " ".join([f"{text}.", *checks])
    return Statement(
        role.id, text, labels, one.metric, one.score, one.low, one.high, one.null, found=True
    )


def _others(table: HeadTable, deciding: set[str], names: HeadNames) -> Statement | None:
    """Return one sentence on the metrics that decide no role and in which heads stand out."""
    ends = {m: METRICS.ranges().get(base_name(m), (None, None))[1] for m in table.metrics}
    best: dict[str, list[Any]] = {}
    for one in ordered_by(catalogue_of(table, ends).special, lambda x: x.size):
        if base_name(one.metric) not in deciding:
            best.setdefault(one.metric, []).append(one)
    if not best:
        return None
    shown = list(best.values())[:OTHERS]
    lines, heads = [], []
    for some in shown:
        x, tied = some[0], [some[i] for i in tied_with([x.score for x in some], 0)]
        line = f"{x.metric} {either([names.of(one) for one in tied])} {score_text(x.score)} "
        line += f"(null {score_text(x.null)})"
        more = len(some) - len(tied)
        lines.append(line + (f" and {more} more" if more else ""))
        heads += [names.of(one) for one in tied]
    more = len(best) - len(shown)
    text = f"Scores without a role in which heads stand out: {'; '.join(lines)}"
    text += f"; and {more} more metric{'s' * (more != 1)}." if more else "."
    x = shown[0][0]
    return Statement(
        None,
        text,
        tuple(dict.fromkeys(heads)),
        x.metric,
        x.score,
        x.low,
        x.high,
        x.null,
        found=True,
    )


def _score(score: float, low: float, high: float, why: str) -> str:
    """Format a score with its 95 % interval, or why values over prompts give none."""
    if math.isnan(low):
        return score_text(score) + (f" [{why}]" if why.startswith(TOO_FEW) else "")
    return f"{score_text(score)} [{score_text(low)}, {score_text(high)}]"


def _null(row: Any) -> str:
    """Format a null with the spread of one head under it, or the error of its mean."""
    spread = row["null_sd"]
    return with_error(row["null"], row["null_sem"] if math.isnan(spread) else spread)
