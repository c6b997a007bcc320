"""Verdicts of causal checks on roles: confirmed, contradicted, or open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from interp.core.columns import score_text, with_error
from interp.core.head import Head
from interp.core.statistics import holm
from interp.core.table import HeadTable
from interp.heads.causal_check.conclusion import Conclusion
from interp.heads.causal_check.one_check import CausalCheck
from interp.heads.roles.declaration import NOTHING, Role
from interp.heads.roles.result import Evidence
from interp.heads.special import APART, LEVEL

if TYPE_CHECKING:
    from interp.heads.causal_check.result import Confirmation

_Place = tuple[str, int, int]
_HALF = 0.5  # share of random sets that do at least as much damage


def verdicts(
    model: str, checks: Sequence[Confirmation | HeadTable], declared: Sequence[Role]
) -> dict[_Place, list[Evidence]]:
    """Return what the checks of one model say about the roles of its heads, by head.

    A check of the top heads of a score speaks for the roles that the score decides; its p is
    corrected over the checks by Holm's method. A table of ablations speaks for the roles whose task
    it used.
    """
    evidence: dict[_Place, list[Evidence]] = {}
    rows = [
        (c, one.conclusions[c.metric])
        for one in checks
        if not isinstance(one, HeadTable)
        for c in one
        if c.model == model
    ]
    for place, one in [*_of_sets(rows, declared), *_of_ablations(model, checks, declared)]:
        evidence.setdefault(place, []).append(one)
    return evidence


def _of_sets(
    checks: Sequence[tuple[CausalCheck, Conclusion]], declared: Sequence[Role]
) -> Iterator[tuple[_Place, Evidence]]:
    """Yield what checks of the top heads of a score say."""
    import numpy as np

    own_checks = [(c, stated) for c, stated in checks if c.purpose == "own" and not c.at_chance]
    usable = [(c, stated, c.controls.p) for c, stated in own_checks if c.controls is not None]
    corrected = holm(np.array([p for *_, p in usable])) if usable else []
    for (check, stated, p), p_holm in zip(usable, corrected, strict=True):
        for role in declared:
            if not any(
                n.metric == check.metric.partition(":")[0] and n.decides for n in role.needs
            ):
                continue
            kind = "confirms" if stated.verdict == "needed" and p_holm <= LEVEL else ""
            # beside sets that share the role a large p says that it is redundant
            apart = check.whole or check.holders == 0
            if role.causal and (stated.verdict == "not needed" or (p >= _HALF and apart)):
                kind = "contradicts"
            if not kind:
                continue
            for name in check.heads:
                head = Head.parse(name)
                place = (head.stack or "decoder", head.layer, head.head)
                yield (
                    place,
                    Evidence(
                        role.id,
                        stated.sentence,
                        f"check of {check.metric}",
                        p=float(p),
                        n=check.n_prompts,
                        clusters=check.n_clusters,
                        unit=check.unit,
                        kind=kind,
                        size=0.0,
                    ),
                )


def _of_ablations(
    model: str, checks: Sequence[Confirmation | HeadTable], declared: Sequence[Role]
) -> Iterator[tuple[_Place, Evidence]]:
    """Yield the heads whose own ablation changes nothing in the task of a role."""
    for table in checks:
        if not isinstance(table, HeadTable) or model not in table.models:
            continue
        for role in (role for role in declared if role.causal and role.task):
            frame: Any = table.where(model=model).to_pandas()
            mine: Any = frame[[_is_ablation(m, role.task) for m in frame["metric"]]]
            largest = float(mine["score"].abs().max()) if len(mine) else 0.0
            if not largest > 0:
                continue
            for row in mine.to_dict("records"):
                ends = [abs(row[end]) for end in ("low", "high") if not math.isnan(row[end])]
                if not ends and not math.isnan(row["sem"]):  # too few prompts differ at all
                    ends.append(abs(row["score"]) + APART * row["sem"])
                if not ends or max(ends) >= NOTHING * largest:
                    continue
                effect = with_error(row["score"], row["sem"])
                text = (
                    f"Ablating it alone changes {role.task} by {effect} "
                    f"{row['unit'].partition(' (')[0]}: nothing beside the {score_text(largest)} "
                    "of the head that matters most."
                )
                place = (str(row["stack"]), int(row["layer"]), int(row["head"]))
                yield (
                    place,
                    Evidence(
                        role.id,
                        text,
                        str(row["metric"]),
                        float(row["score"]),
                        float(row["sem"]),
                        int(row["n"]),
                        int(row["clusters"]),
                        unit=str(row["unit"]),
                        kind="contradicts",
                        size=0.0,
                    ),
                )


def _is_ablation(metric: str, task: str) -> bool:
    name, _, options = metric.partition(":")
    return name == "ablation" and f"task={task}" in options.split(",")
