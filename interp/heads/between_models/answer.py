"""Answer of a comparison: roles gained and lost, the heads that changed most, the change of a loss.

A role is gained or lost by a head only if the score that decides it differs significantly between
the models (p corrected over all rows of the comparison); a head near a threshold has the role in
one model only by chance, and is listed apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp.core.columns import score_text, with_noun
from interp.core.head import Head
from interp.core.registry import METRICS
from interp.core.ties import ranked
from interp.heads.roles.declared import ROLES
from interp.heads.roles.statements import joined_names
from interp.heads.special import LEVEL

if TYPE_CHECKING:
    import pandas as pd

    from interp.heads.roles.result import HeadRole, HeadRoles

_Place = tuple[str, int, int]  # stack, layer, head


@dataclass(frozen=True)
class RoleChange:
    """Heads that have one role in A or in B.

    Args:
        role: the role as in "induction head".
        before: heads with the role in A.
        after: heads with the role in B.
        lost: heads with the role in A only, whose deciding score differs significantly.
        gained: heads with the role in B only, whose deciding score differs significantly, or that
            have no counterpart in A.
        open: heads with the role in one model only, without a significant difference.
    """

    role: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    lost: tuple[str, ...]
    gained: tuple[str, ...]
    open: tuple[str, ...]

    def summary(self) -> str:
        """Return the change as text, such as `induction head: 3 in A, 0 in B; lost L1H0`."""
        parts = [f"{self.role}: {len(self.before)} in A, {len(self.after)} in B"]
        parts += [f"lost {joined_names(self.lost)}"] if self.lost else []
        parts += [f"gained {joined_names(self.gained)}"] if self.gained else []
        if self.open:
            parts.append(
                f"in one model only, by a difference that may be chance: {joined_names(self.open)}"
            )
        return "; ".join(parts)


@dataclass(frozen=True)
class HeadChange:
    """The largest change of one head over all metrics.

    Args:
        stack, head, head_b: the head in A, and its counterpart in B.
        metric: the metric in which it changed most, relative to the metric's range.
        a, b: the score in both models.
        p_holm: p of the difference, corrected over all rows; NaN for exact scores of weights.
        share: absolute difference divided by the metric's range, or by the largest score of the
            metric if its range has no ends.
        also: further metrics that differ significantly, the largest change first.
        differs: True if the difference is significant, or exact.
    """

    stack: str
    head: str
    head_b: str
    metric: str
    a: float
    b: float
    p_holm: float
    share: float
    also: tuple[str, ...]
    differs: bool

    def summary(self) -> str:
        """Return the change as text, with p and further metrics."""
        name = self.head if self.head == self.head_b else f"{self.head} -> {self.head_b}"
        text = f"{name}: {self.metric} {score_text(self.a)} to {score_text(self.b)}"
        text += " (exact)" if math.isnan(self.p_holm) else f" (p_holm {self.p_holm:.2g})"
        return f"{text}; also {', '.join(self.also)}" if self.also else text


@dataclass(frozen=True)
class LossChange:
    """Next-token loss of both models on the compared prompts, paired over prompts.

    Args:
        a, b: mean loss of A and B, in nats per token.
        low, high: 95 % interval of the difference B - A; NaN if it has no error.
        p: p of the difference.
        n, clusters: prompts and their clusters.
    """

    a: float
    b: float
    low: float
    high: float
    p: float
    n: int
    clusters: int

    def summary(self) -> str:
        """Return both losses and their difference as text."""
        within = "" if math.isnan(self.low) else f" [{self.low:+.3g}, {self.high:+.3g}]"
        return (
            f"{self.a:.4g} in A, {self.b:.4g} in B: {self.b - self.a:+.3g}{within} nats per token "
            f"over {self.n} prompts in {self.clusters} clusters"
        )


@dataclass(frozen=True)
class ComparisonAnswer:
    """Changes between two models, for all places that show them.

    Args:
        name: name of B, or "B" for a group.
        roles: the roles that some head has in A or B.
        heads: every head that changed, the largest change first.
        tested: number of compared heads.
        loss: the losses; None if they were not measured.
        why_no_roles, why_no_loss: the reason where roles or losses are missing.
    """

    name: str
    roles: tuple[RoleChange, ...]
    heads: tuple[HeadChange, ...]
    tested: int
    loss: LossChange | None
    why_no_roles: str = ""
    why_no_loss: str = ""

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return f"{self.name} {self._roles()}; {self._heads()}; {self._loss()}."

    def lines(self, k: int = 5) -> list[str]:
        """Return the sentence, then roles, the k heads that changed most, and the loss."""
        sentences = [self.sentence]
        if self.why_no_roles:
            sentences.append(f"roles: not compared, because {self.why_no_roles}")
        elif not self.roles:
            sentences.append("roles: no head has one in either model, by the compared metrics")
        sentences += [one.summary() for one in self.roles]
        sentences += [one.summary() for one in self.heads[:k]]
        return [*sentences, self._loss_line()]

    def _loss_line(self) -> str:
        if self.loss is None:
            return f"loss on the prompts: not compared, because {self.why_no_loss}"
        return f"loss on the prompts: {self.loss.summary()}"

    def _roles(self) -> str:
        lost = [
            f"{len(x.lost)} of {with_noun(len(x.before), x.role)}" for x in self.roles if x.lost
        ]
        gained = [with_noun(len(x.gained), x.role) for x in self.roles if x.gained]
        lines = [
            f"{verb} {joined_names(named, len(named))}"
            for verb, named in (("loses", lost), ("gains", gained))
            if named
        ]
        if lines:
            return " and ".join(lines)
        return "was not compared by roles" if self.why_no_roles else "gains and loses no role"

    def _heads(self) -> str:
        count = sum(one.differs for one in self.heads)
        if not count:
            return f"none of {self.tested} heads differs significantly"
        first = self.heads[0]
        return (
            f"{count} of {self.tested} heads differ, {first.head} the most ({first.metric} "
            f"{score_text(first.a)} to {score_text(first.b)})"
        )

    def _loss(self) -> str:
        if self.loss is None:
            return f"the loss on the prompts was not compared, because {self.why_no_loss}"
        x = self.loss
        if not x.p < LEVEL:
            return (
                f"the loss on the prompts does not change significantly ({x.a:.3g} to {x.b:.3g} "
                "nats per token)"
            )
        way = "rises" if x.b > x.a else "falls"
        return f"the loss on the prompts {way} from {x.a:.3g} to {x.b:.3g} nats per token"


def role_changes(
    a: HeadRoles, b: HeadRoles, rows: pd.DataFrame, partners: Mapping[_Place, Head] | None
) -> tuple[RoleChange, ...]:
    """Return the roles that heads of two models have, and which of them changed."""
    p = {
        (r["stack"], r["layer"], r["head"], r["metric"]): r["p_holm"]
        for r in rows.to_dict("records")
    }
    there = {(x.stack, x.layer, x.head): x for x in b.assigned}
    pairs: list[tuple[HeadRole | None, HeadRole | None]] = []
    left = dict(there)
    for x in a.assigned:
        at = (x.stack, x.layer, x.head)
        if partners is not None:
            head = partners.get(at)
            at = (x.stack, -1, -1) if head is None else (x.stack, head.layer, head.head)
        pairs.append((x, left.pop(at, None)))
    pairs += [(None, x) for x in left.values()]
    changes = []
    for role in ROLES:
        groups: dict[str, list[str]] = {
            x: [] for x in ("before", "after", "lost", "gained", "open")
        }
        for x, y in pairs:
            has, will = (one is not None and role.id in one.roles for one in (x, y))
            if has and x is not None:
                groups["before"].append(x.label)
            if will and y is not None:
                groups["after"].append(y.label)
            if has == will:
                continue
            holder: Any = x if has else y
            evidence = holder.first(role.id)
            sure = (
                x is None
                or y is None
                or (
                    evidence is not None
                    and p.get((x.stack, x.layer, x.head, evidence.metric), 1.0) < LEVEL
                )
            )
            groups[("lost" if has else "gained") if sure else "open"].append(holder.label)
        if groups["before"] or groups["after"]:
            changes.append(RoleChange(role.noun, **{k: tuple(v) for k, v in groups.items()}))
    return tuple(changes)


def head_changes(rows: pd.DataFrame) -> tuple[HeadChange, ...]:
    """Return the heads with any difference: significant ones first, then by size.

    Differences of several metrics are compared as shares of each metric's range.
    """
    frame = rows.assign(share=0.0, differs=(rows["p_holm"] < LEVEL) | rows["p_holm"].isna())
    ranges = METRICS.ranges()
    groups: Any = frame.groupby("metric", sort=False)
    for metric, part in groups:
        low, high = ranges.get(str(metric).partition(":")[0], (None, None))
        width = math.inf if low is None or high is None else high - low
        if not math.isfinite(width):
            width = float(part[["score_a", "score_b"]].abs().to_numpy().max())
        frame.loc[part.index, "share"] = part["score"].abs() / (width or 1.0)
    changed: Any = frame[frame["score"] != 0]
    changed = ranked(changed, "share")
    changed = changed.sort_values("differs", ascending=False, kind="stable")
    changes = []
    heads: Any = changed.groupby(["stack", "layer", "head"], sort=False)
    for (stack, layer, head), part in heads:
        first = part.iloc[0]
        name = f"L{layer}H{head}"
        other = first.get("head_b")
        also = part[part["differs"]]["metric"].tolist()[1:]
        changes.append(
            HeadChange(
                str(stack),
                name,
                other if isinstance(other, str) else name,
                str(first["metric"]),
                float(first["score_a"]),
                float(first["score_b"]),
                float(first["p_holm"]),
                float(first["share"]),
                tuple(map(str, also)),
                bool(first["differs"]),
            )
        )
    return tuple(changes)
