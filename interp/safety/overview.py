"""Study of the refusal of one model: direction, head scores, concentration and curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.result import Result
from interp.core.result_rows import ResultRows
from interp.core.steps import finishing
from interp.core.table import HeadTable
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model
from interp.safety.concentration import Spread, spread
from interp.safety.curves import SafetyCurves, safety_curves
from interp.safety.projection import refusal_projection_scores
from interp.safety.prompts import PromptSets
from interp.safety.removal import Ships, ships_scores
from interp.safety.selection import chosen_direction, search_direction
from interp.safety.subspace import FORMS, sahara
from interp.safety.task import refusal_ids, refusal_log_odds

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.model.model import Model

RANKINGS = ("projection", "ships")


@dataclass(frozen=True, eq=False, repr=False)
class SafetyStudy(Result):
    """Refusal of a model: its direction, scores of all heads, and the effect of ablating them.

    The rows are heads by each score, those of `table`; scores on harmful prompts have the same
    score on harmless prompts beside them where that exists.

    Args:
        model: Name of the model.
        search: Candidate directions and the filters they fail.
        direction: The direction that heads are projected on, in words.
        projection: Projection on the chosen direction, or, where none passes, on the difference of
            means of the other half of the prompts (see `refusal_projection`).
        ships: Effect of ablating each head on the next token.
        sahara: One search per form.
        spread: Concentration of each score across heads, on harmful prompts.
        curves: Cumulative ablation of the top heads.
        ranking: The score that orders the heads of the curves.
        made: Provenance.
    """

    model: str
    search: ResultRows
    direction: str
    projection: HeadTable
    ships: Ships
    sahara: tuple[ResultRows, ...]
    spread: dict[str, Spread]
    curves: SafetyCurves
    ranking: str
    made: dict[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "its scores have different prompts; see .ships.harmful and .curves"
    _units = ("stack", "layer", "head")

    @classmethod
    def _types(cls) -> tuple[type, ...]:
        parts = (Ships, ResultRows, SafetyCurves)
        inside = [each for part in parts for each in (part, *part._types())]
        return (*inside, Spread)

    @property
    def provenance(self) -> dict[str, Any]:  # type: ignore[override]
        """The model, the prompts and the options."""
        return self.made

    def _rows(self) -> pd.DataFrame:
        """Return one row per head and score."""
        return self.table.to_pandas()

    def plot(self) -> go.Figure:  # type: ignore[override]  # every row is drawn
        """Plot both tasks over the number of ablated heads; see `SafetyCurves.plot`."""
        return self.curves.plot()

    @property
    def table(self) -> HeadTable:
        """Scores by projection, SHIPS on both sets, and the first step of each Sahara search."""
        return HeadTable.concat(
            [self.projection, self.ships.table, *(s.table for s in self.sahara)]
        )

    def __str__(self) -> str:
        damage = self.curves.damage(len(self.curves.removed))
        effect = self.curves.effect(len(self.curves.removed))
        outside = self.curves.outside(len(self.curves.removed))
        names = " ".join(self.curves.removed)
        values = {True: "outside", False: "within"}
        return "\n".join(
            [
                self.model,
                *(f"  {line}" for line in str(self.search).splitlines()),
                f"  projected on {self.direction}",
                *(f"  spread of {name}: {one}" for name, one in self.spread.items()),
                f"  {self.ships}",
                *(f"  {one}" for one in self.sahara),
                f"  top {len(self.curves.removed)} heads by {self.ranking} ablated ({names}):"
                f" refusal {effect:.3g} nats lower ({values[outside[0]]} the band of random heads),"
                f" harmless loss {damage:+.3g} nats/token ({values[outside[1]]} theirs)",
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
    n_heads: int = 6,
    by: str = "projection",
    forms: Sequence[str] = tuple(FORMS),
    steps: int = 3,
    n_random: int = 20,
    seed: int = 0,
    reference: Any = None,
    resume: Path | None = None,
    progress: Progress | None = None,
) -> SafetyStudy:
    """Search the refusal direction, score every head, and ablate the top heads.

    Args:
        model: The model.
        harmful: Prompts that the model should decline: texts, ids or `Prompts`.
        harmless: Prompts that it should answer.
        refusal_tokens: Tokens that begin a refusal; by default those of the model's config.
        kind: Replacement of an ablated head; "mean-dataset" uses the mean over `reference`.
        n_heads: Number of heads that the curves ablate.
        by: The score that orders them, `projection` or `ships`.
        forms: Forms of the Sahara searches.
        steps: Number of heads that each search takes.
        n_random: Number of random orders of the curves.
        seed: Seed of splits and random orders.
        reference: Prompts for "mean-dataset".
        resume: A folder that stores finished coalitions of SHIPS and of the curves.
        progress: Called with the name of the current work, how much is done and how much there is.

    Raises:
        PromptError: The two sets coincide, or the model declines fewer than two harmful prompts or
            answers fewer than two harmless ones, so there is no refusal to study.
        OptionError: There are no refusal tokens, or an option does not fit.

    Unit: see its parts.

    Cost: That of all the methods below.

    Null: harmless prompts; random heads.

    Not for: a model that does not decline: it is refused, since there is nothing to study.

    Reference: the methods below.
    """
    if by not in RANKINGS:
        raise OptionError(f"by={by!r}; heads are ranked by {' or '.join(RANKINGS)}")
    ids = refusal_ids(model, refusal_tokens)
    sets = PromptSets.of(model, harmful, harmless)
    found = search_direction(model, sets.harmful, sets.harmless, ids, seed=seed, progress=progress)
    if found.chosen.any():
        chosen = chosen_direction(found)
        projected = refusal_projection_scores(model, sets.harmful, sets.harmless, chosen)
        text = f"the chosen direction, layer {chosen.layer} at position {chosen.position}"
    else:
        projected = refusal_projection_scores(model, sets.harmful, sets.harmless, seed=seed)
        text = "the difference of means of the other half of the prompts: no candidate passes"
    out: dict[str, Any] = {"kind": kind, "reference": reference}
    removal = ships_scores(
        model, sets.harmful, sets.harmless, resume=resume, progress=progress, **out
    )
    searches = tuple(
        sahara(model, sets.harmful, sets.harmless, form=form, steps=steps,
               progress=progress, **out)
        for form in forms
    )  # fmt: skip
    tables = {"projection": projected, "ships": removal.harmful.table}
    curves = safety_curves(
        model, tables[by], refusal_log_odds(model, sets.harmful, ids), sets.harmless, k=n_heads,
        n_random=n_random, seed=seed, resume=resume, progress=progress, **out,
    )  # fmt: skip
    made = model_provenance(model) | sets.about()
    made |= {"refusal_tokens": list(ids), "kind": kind, "k": n_heads, "ranking": by, "seed": seed}
    if reference is not None:
        reference = Prompts.of(reference, model)
        made["reference"] = f"{reference.design}, {reference.hash}"
    made |= {"n_random": n_random, "made_by": "interp.safety.study"}
    return SafetyStudy(
        model.name, found, text, projected, removal, searches,
        {name: spread(table) for name, table in tables.items()}, curves, by, made,
    )  # fmt: skip
