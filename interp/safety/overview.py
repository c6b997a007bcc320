"""Everything about the refusal of one model: direction, scores of heads, spread, curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.steps import finishing
from interp.core.table import HeadTable
from interp.model.content import model_provenance
from interp.model.given import takes_model
from interp.safety.concentration import Spread, spread
from interp.safety.curves import SafetyCurves, safety_curves
from interp.safety.projection import refusal_projection_scores
from interp.safety.prompts import PromptSets
from interp.safety.removal import Ships, ships_scores
from interp.safety.selection import DirectionSearch, search_direction
from interp.safety.subspace import FORMS, Sahara, sahara
from interp.safety.task import refusal_ids, refusal_log_odds

if TYPE_CHECKING:
    from interp.model.model import Model

RANKINGS = ("projection", "ships")


@dataclass(frozen=True, eq=False)
class SafetyStudy:
    """What was found; every number also says what it is on harmless prompts, where it can.

    Args:
        search: candidate directions and the filters they fail.
        projection: along the chosen direction, or, where none passes, on the difference of means of
            the other half of the prompts (see `refusal_projection`); `direction` says which.
        sahara: one search per form.
        spread: over how many heads each score is spread, on harmful prompts.
        ranking: which score the curves take heads out by.
    """

    model: str
    search: DirectionSearch
    direction: str
    projection: HeadTable
    ships: Ships
    sahara: tuple[Sahara, ...]
    spread: dict[str, Spread]
    curves: SafetyCurves
    ranking: str
    made: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def table(self) -> HeadTable:
        """Projection, SHIPS on both sets, and the first step of each Sahara search."""
        return HeadTable.concat(
            [self.projection, self.ships.table, *(s.table for s in self.sahara)]
        )

    def __str__(self) -> str:
        damage = self.curves.damage(len(self.curves.heads))
        effect = self.curves.effect(len(self.curves.heads))
        outside = self.curves.outside(len(self.curves.heads))
        names = " ".join(self.curves.heads)
        told = {True: "outside", False: "within"}
        return "\n".join(
            [
                self.model,
                *(f"  {line}" for line in str(self.search).splitlines()),
                f"  projected on {self.direction}",
                *(f"  spread of {name}: {one}" for name, one in self.spread.items()),
                f"  {self.ships}",
                *(f"  {one}" for one in self.sahara),
                f"  top {len(self.curves.heads)} heads by {self.ranking} out ({names}): refusal"
                f" {effect:.3g} nats lower ({told[outside[0]]} the band of random heads), harmless"
                f" loss {damage:+.3g} nats/token ({told[outside[1]]} theirs)",
            ]
        )


@takes_model
@finishing()
def study(
    model: Model,
    harmful: Any,
    harmless: Any,
    refusal_tokens: Sequence[int | str] | None = None,
    *,
    kind: str = "zero",
    k: int = 6,
    ranking: str = "projection",
    forms: Sequence[str] = tuple(FORMS),
    steps: int = 3,
    n_random: int = 20,
    seed: int = 0,
    reference: Any = None,
    ledger: Path | None = None,
    progress: Progress | None = None,
) -> SafetyStudy:
    """Search the refusal direction, score every head around it, and take the best heads out.

    Args:
        harmful, harmless: texts, ids or `Prompts`.
        refusal_tokens: that begin a refusal; those of the model's config unless given.
        kind: what replaces a head that is out; "mean-dataset" takes the mean over `reference`.
        k: heads that the curves take out.
        ranking: by `projection` or by `ships`.
        ledger: a folder that keeps finished coalitions of SHIPS and of the curves.

    Raises:
        PromptError: sets that coincide, or a model that declines fewer than two harmful prompts or
            answers fewer than two harmless ones: then there is no refusal to study.
        OptionError: no refusal tokens, or options that do not fit.

    Unit: see its parts.

    Cost: That of all the methods below.

    Null: harmless prompts; random heads.

    Not for: a model that does not decline: it is refused, since there is nothing to study.

    Reference: the methods below.
    """
    if ranking not in RANKINGS:
        raise OptionError(f"ranking={ranking!r}; heads are ranked by {' or '.join(RANKINGS)}")
    ids = refusal_ids(model, refusal_tokens)
    sets = PromptSets.of(model, harmful, harmless)
    found = search_direction(model, sets.harmful, sets.harmless, ids, seed=seed, progress=progress)
    if found.passing:
        chosen = found.direction
        projected = refusal_projection_scores(model, sets.harmful, sets.harmless, chosen)
        told = f"the chosen direction, layer {chosen.layer} at position {chosen.position}"
    else:
        projected = refusal_projection_scores(model, sets.harmful, sets.harmless, seed=seed)
        told = "the difference of means of the other half of the prompts: no candidate passes"
    out: dict[str, Any] = {"kind": kind, "reference": reference}
    removal = ships_scores(
        model, sets.harmful, sets.harmless, ledger=ledger, progress=progress, **out
    )
    searches = tuple(
        sahara(model, sets.harmful, sets.harmless, form=form, steps=steps,
               progress=progress, **out)
        for form in forms
    )  # fmt: skip
    tables = {"projection": projected, "ships": removal.harmful.table}
    curves = safety_curves(
        model, tables[ranking], refusal_log_odds(model, sets.harmful, ids), sets.harmless, k=k,
        n_random=n_random, seed=seed, ledger=ledger, progress=progress, **out,
    )  # fmt: skip
    made = model_provenance(model) | sets.about()
    made |= {"refusal_tokens": list(ids), "kind": kind, "k": k, "ranking": ranking, "seed": seed}
    if reference is not None:
        reference = Prompts.of(reference, model)
        made["reference"] = f"{reference.design}, {reference.hash}"
    made |= {"n_random": n_random, "made_by": "interp.safety.study"}
    return SafetyStudy(
        model.name, found, told, projected, removal, searches,
        {name: spread(table) for name, table in tables.items()}, curves, ranking, made,
    )  # fmt: skip
