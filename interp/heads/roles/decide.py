"""The rule that decides the role of each head.

A head has a role if one of the role's deciding scores is on the declared side of its null with a
corrected p below `interp.heads.special.LEVEL`, differs from it by at least what the role states in
the metric's unit, and is far from it beside the range or the other heads. The correction is
Bonferroni's over all heads of the model and all scores of the table that speak for any role, so the
probability that any head of a model without structure gets a role is at most the level. Then a role
yields to a more exact one, a causal check can contradict a role, and a head with two or more roles
is "several". A head that was judged and has no role is "unclear"; one without a null has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp import __version__
from interp.core.columns import with_error
from interp.core.errors import OptionError
from interp.core.registry import METRICS
from interp.core.ties import ordered_by, reaches
from interp.heads.roles.checks import verdicts
from interp.heads.roles.declaration import ENDS, Need, Role
from interp.heads.roles.declared import ROLES
from interp.heads.roles.result import Evidence, HeadRole, HeadRoles
from interp.heads.special import APART, LEVEL, judged_rows, large

if TYPE_CHECKING:
    import pandas as pd

    from interp.core.table import HeadTable
    from interp.heads.causal_check.result import Confirmation

_Place = tuple[str, int, int]  # stack, layer, head
Check = Any
"""A `Confirmation`, a table of ablations, or an `Importance` that holds one."""


def roles(
    table: HeadTable,
    checks: Check | Iterable[Check] = (),
    *,
    evidence: Mapping[tuple[str, str, int, int], Sequence[Evidence]] | None = None,
    declared: Sequence[Role] = ROLES,
) -> HeadRoles:
    """Decide the role of every head of every model of a table.

    Args:
        table: scores of heads, with their nulls.
        checks: causal checks of `interp.confirm`, and results or tables of `interp.ablate`, on
            these models; one or several.
        evidence: deciding evidence of other kinds, such as dependency relations, by model, stack,
            layer and head; it is corrected by whoever found it.
        declared: the roles to look for.

    Returns:
        One row per head: its role ("several" and "unclear" included), or None where no score of the
        head has a null; with its evidence.
    """
    ranges, checks = METRICS.ranges(), as_checks(checks)
    assigned, tests = [], {}
    for model in table.models:
        scores = table.where(model=model)
        known = {m: ranges.get(base_name(m), (None, None)) for m in scores.metrics}
        frame = judged_rows(scores, known)
        by_head, judged, tests[model] = _evidence(frame, declared)
        for (name, *place), more in (evidence or {}).items():
            if name == model:
                by_head.setdefault(tuple(place), []).extend(more)  # type: ignore[arg-type]
                judged.add(tuple(place))  # type: ignore[arg-type]
        checked = verdicts(model, checks, declared)
        places: Any = scores.to_pandas()[["stack", "layer", "head"]].drop_duplicates()
        for stack, layer, head in places.sort_values(["stack", "layer", "head"]).itertuples(
            index=False, name=None
        ):
            at = (str(stack), int(layer), int(head))
            mine = [*by_head.get(at, []), *checked.get(at, [])]
            assigned.append(_decided(model, at, mine, at in judged, declared))
    provenance = {
        "made_by": "interp.roles",
        "model": ", ".join(table.models),
        "level": LEVEL,
        "tests": tests,
        "versions": {"interp": __version__},
        "roles": {role.id: role.rule for role in declared},
        "scores": {f"{m} {metric}": about for (m, metric), about in table.provenance.items()},
    }
    return HeadRoles(tuple(assigned), provenance)


def as_checks(given: Check | Iterable[Check]) -> tuple[Confirmation | HeadTable, ...]:
    """Return checks and tables of ablations as a tuple."""
    from interp.core.table import HeadTable
    from interp.heads.causal_check.result import Confirmation

    alone = isinstance(given, (Confirmation, HeadTable)) or hasattr(given, "table")
    alone = alone or not isinstance(given, Iterable)
    results = []
    for one in (given,) if alone else given:
        table = getattr(one, "table", one)
        if not isinstance(table, (Confirmation, HeadTable)):
            raise OptionError(
                f"{one!r} is not a causal check; give results of interp.confirm or interp.ablate"
            )
        results.append(table)
    return tuple(results)


def base_name(label: str) -> str:
    """Return the name of a metric without its options, as `local_window` of `local_window:width=8`.

    A part of a score, such as `induction [period 12]`, keeps its name.
    """
    return label.partition(":")[0]


def _evidence(
    frame: pd.DataFrame, declared: Sequence[Role]
) -> tuple[dict[_Place, list[Evidence]], set[_Place], int]:
    """Return the evidence of each head from its scores, the judged heads, and the tests made."""
    needs = [(role, need) for role in declared for need in role.needs]
    names = frame["metric"].map(base_name)
    judged: Any = frame[frame["judged"] & names.isin([need.metric for _, need in needs])]
    limit = LEVEL / max(len(judged), 1)
    sure = judged[judged["p"] < limit]
    bases = sure["metric"].map(base_name)
    present = set(bases)  # a table has few of the metrics that some role needs
    by_head: dict[_Place, list[Evidence]] = {}
    for role, need in needs:
        if need.metric not in present:
            continue
        rows: Any = sure[bases == need.metric]
        for row in far_rows(rows, need).to_dict("records"):
            at = (str(row["stack"]), int(row["layer"]), int(row["head"]))
            by_head.setdefault(at, []).append(_as_evidence(role, need, row))
    deciding = [need.metric for _, need in needs if need.decides]
    rows = judged[judged["metric"].map(base_name).isin(deciding)]
    places = {(str(s), int(x), int(h)) for s, x, h in rows[["stack", "layer", "head"]].to_numpy()}
    return by_head, places, len(judged)


def far_rows(rows: pd.DataFrame, need: Need) -> pd.DataFrame:
    """Return the rows on the need's side of their null whose effect is large, and not tiny."""
    side = 1 if need.end == "high" else -1
    mine: Any = rows[reaches(side * (rows["score"] - rows["null"]), need.least)]
    if need.end == "low":
        mine = mine.assign(share=mine["share_low"])
    return mine[large(mine, need.share)]


def _as_evidence(role: Role, need: Need, row: Mapping[str, Any]) -> Evidence:
    share = row["share"] / need.share
    text = (
        f"{row['metric']} {with_error(row['score'], row['sem'])}, {ENDS[need.end]} its null of "
        f"{with_error(row['null'], row['null_sem'])} (p {row['p']:.1g})."
    )
    return Evidence(
        role.id,
        text,
        str(row["metric"]),
        float(row["score"]),
        float(row["sem"]),
        int(row["n"]),
        int(row["clusters"]),
        float(row["null"]),
        float(row["null_sem"]),
        float(row["p"]),
        str(row["unit"]),
        "decides" if need.decides else "supports",
        float(max(abs(row["apart"]) / APART, 0.0 if math.isnan(share) else share)),
        float(row["low"]),
        float(row["high"]),
        str(row["why_no_interval"]),
    )


def _decided(
    model: str, at: _Place, found: Sequence[Evidence], judged: bool, declared: Sequence[Role]
) -> HeadRole:
    """Apply the rule to the evidence of one head."""
    sizes: dict[str, float] = {}
    for one in found:
        if one.kind == "decides":
            sizes[one.role] = max(sizes.get(one.role, 0.0), one.size)
    against = {one.role for one in found if one.kind == "contradicts"}
    mine = [role for role in declared if role.id in sizes]
    # also to a role that a check contradicts: its scores explain those of the other
    first = [role for role in mine if not set(role.yields_to) & set(sizes)]
    uncontradicted = [role for role in first if role.id not in against]
    names = ordered_by((role.id for role in uncontradicted), sizes.__getitem__)
    yielded = tuple(role.id for role in mine if role not in first)
    rank = {"decides": 0, "supports": 1, "confirms": 2, "contradicts": 3}
    # a check or further evidence is shown only with a role that the scores speak for
    parts = sorted(
        (one for one in found if one.kind == "decides" or one.role in sizes),
        key=lambda one: (one.role not in names, rank[one.kind], -one.size),
    )
    role = names[0] if len(names) == 1 else "several" if names else "unclear" if judged else None
    return HeadRole(model, *at, role, tuple(names), yielded, tuple(parts))
