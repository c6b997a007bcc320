"""Result of deciding roles: one row per head."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interp.core.result import Result

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    "model",
    "stack",
    "layer",
    "head",
    "role",
    "roles",
    "metric",
    "score",
    "sem",
    "n",
    "clusters",
    "null",
    "p",
    "unit",
    "evidence",
)


@dataclass(frozen=True)
class Evidence:
    """One reason for or against a role.

    Args:
        role: id of the role.
        text: the reason as one sentence.
        metric: label of the metric, or of the check.
        score, sem, n, clusters, null, null_sem, p, unit, low, high, why_no_interval: of the head,
            as in a table of scores; NaN where the reason is not a score. `p` is not corrected.
        kind: "decides" for a score that gives the role, "supports" for further evidence,
            "contradicts" for a causal check that removes the role, "confirms" for one that agrees.
        size: the effect, relative to the required minimum.
    """

    role: str
    text: str
    metric: str
    score: float = math.nan
    sem: float = math.nan
    n: int = 0
    clusters: int = 0
    null: float = math.nan
    null_sem: float = math.nan
    p: float = math.nan
    unit: str = ""
    kind: str = "decides"
    size: float = math.nan
    low: float = math.nan
    high: float = math.nan
    why_no_interval: str = ""


@dataclass(frozen=True)
class HeadRole:
    """The role of one head.

    Args:
        role: id of the role, "several" or "unclear"; None if no score of the head can be judged,
            because none has a null.
        roles: the roles of the head, the largest effect first.
        yielded: roles whose rule the head meets too, and that are not its name because another role
            is more exact.
        evidence: the reasons, those that decide first.
    """

    model: str
    stack: str
    layer: int
    head: int
    role: str | None
    roles: tuple[str, ...]
    yielded: tuple[str, ...]
    evidence: tuple[Evidence, ...]

    @property
    def label(self) -> str:
        """Label such as L5H1."""
        return f"L{self.layer}H{self.head}"

    def first(self, role: str | None = None) -> Evidence | None:
        """Return the first deciding evidence, of one role or of the head's own roles."""
        wanted = self.roles if role is None else (role,)
        return next((e for e in self.evidence if e.kind == "decides" and e.role in wanted), None)


@dataclass(frozen=True, repr=False)
class HeadRoles(Result):
    """Roles of all heads of one or several models.

    Each row is a head; its score is that of the strongest evidence for its role, and NaN for a head
    without one. `evidence` holds all reasons as text.

    Args:
        assigned: the roles, in the order of the table of scores.
        provenance: the rule (`level`, `roles`), the numbers of tests of each model, and the
            provenance of the scores.
    """

    assigned: tuple[HeadRole, ...]
    provenance: Mapping[str, Any] = field(repr=False)
    per_prompt = None
    why_no_per_prompt = "a role is decided from scores and nulls, not on single prompts"
    _units = ("stack", "layer", "head")
    _per_row = ("assigned",)
    _holds = (HeadRole, Evidence)

    def __len__(self) -> int:
        return len(self.assigned)

    def of(self, model: str) -> HeadRoles:
        """Return the heads of one model.

        Raises:
            UnknownName: the result has no such model.
        """
        from interp.core.errors import UnknownName

        if model not in (models := dict.fromkeys(x.model for x in self.assigned)):
            raise UnknownName("model", model, models)
        return self._take([at for at, x in enumerate(self.assigned) if x.model == model])

    def with_role(self, role: str) -> tuple[HeadRole, ...]:
        """Return the heads that have a role, alone or among several."""
        return tuple(x for x in self.assigned if role in (*x.roles, x.role))

    def counts(self) -> dict[str, int]:
        """Return the number of heads of each role, in the order of the legend; None is left out."""
        from interp.heads.roles.declared import LEGEND

        roles = [x.role for x in self.assigned]
        return {role.id: roles.count(role.id) for role in LEGEND if role.id in roles}

    def by_model(self) -> pd.DataFrame:
        """Return one row per model with the number of its heads of each role.

        A head with several roles counts for each. The columns are the roles that any model has;
        `heads` is the number of heads, and `unclear` those that were judged and have no role.
        """
        import pandas as pd

        from interp.heads.roles.declared import ROLES, UNCLEAR

        there = {role for x in self.assigned for role in x.roles}
        names = [role.id for role in ROLES if role.id in there]
        rows = []
        for model in dict.fromkeys(x.model for x in self.assigned):
            heads = [x for x in self.assigned if x.model == model]
            counts = {name: sum(name in x.roles for x in heads) for name in names}
            unclear = sum(x.role == UNCLEAR.id for x in heads)
            rows.append({"model": model, "heads": len(heads)} | counts | {UNCLEAR.id: unclear})
        return pd.DataFrame(rows, columns=["model", "heads", *names, UNCLEAR.id])

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        rows = []
        for x in self.assigned:
            first = x.first() or Evidence("", "", "")
            rows.append(
                {
                    "model": x.model,
                    "stack": x.stack,
                    "layer": x.layer,
                    "head": x.head,
                    "role": x.role,
                    "roles": " ".join(x.roles),
                    "metric": first.metric,
                    "score": first.score,
                    "sem": first.sem,
                    "n": first.n,
                    "clusters": first.clusters,
                    "null": first.null,
                    "p": first.p,
                    "unit": first.unit,
                    "evidence": " ".join(e.text for e in x.evidence),
                }
            )
        return pd.DataFrame(rows, columns=pd.Index(_COLUMNS))

    def __repr__(self) -> str:
        from interp.heads.roles.declared import role_named

        unjudged = sum(x.role is None for x in self.assigned)
        lines = [f"HeadRoles: {len(self)} heads"]
        for role, count in self.counts().items():
            named = [x.label for x in self.with_role(role)][:6]
            more = " ..." if len(self.with_role(role)) > 6 else ""
            lines.append(f"  {role_named(role).name}: {count} ({', '.join(named)}{more})")
        if unjudged:
            lines.append(f"  no null, so no role: {unjudged}")
        return "\n".join(lines)
