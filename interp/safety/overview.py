"""Study of the refusal of one model: direction, head scores, concentration and curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.core.steps import finishing
from interp.core.table import HeadTable
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model
from interp.safety.concentration import spread
from interp.safety.curves import safety_curves
from interp.safety.projection import refusal_projection_scores
from interp.safety.prompts import PromptSets
from interp.safety.removal import ships_scores
from interp.safety.selection import chosen_direction, search_direction
from interp.safety.subspace import FORMS, sahara
from interp.safety.task import refusal_ids, refusal_log_odds

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.model.model import Model

RANKINGS = ("projection", "ships")


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
) -> ResultRows:
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

    Returns:
        One row per head and score: the projection, SHIPS on both sets, and the first step of each
        Sahara search. Facts: search, the candidate directions and the filters they fail; direction,
        that which heads are projected on, in words; projection, the scores on the chosen direction,
        or, where none passes, on the difference of means of the other half of the prompts (see
        `refusal_projection`); ships, the effect of ablating each head on the next token; sahara, a
        search per form; spread, the concentration of each score across heads, on harmful prompts;
        curves, the cumulative ablation of the top heads; ranking, the score that orders them.

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
    search = search_direction(model, sets.harmful, sets.harmless, ids, seed=seed, progress=progress)
    if search.chosen.any():
        chosen = chosen_direction(search)
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
        sahara(model, sets.harmful, sets.harmless, form=form, steps=steps, progress=progress, **out)
        for form in forms
    )
    tables = {"projection": projected, "ships": removal.harmful.table}
    curves = safety_curves(
        model,
        tables[by],
        refusal_log_odds(model, sets.harmful, ids),
        sets.harmless,
        k=n_heads,
        n_random=n_random,
        seed=seed,
        resume=resume,
        progress=progress,
        **out,
    )
    provenance = model_provenance(model) | sets.about()
    provenance |= {
        "refusal_tokens": list(ids),
        "kind": kind,
        "k": n_heads,
        "ranking": by,
        "seed": seed,
    }
    if reference is not None:
        reference = Prompts.of(reference, model)
        provenance["reference"] = f"{reference.design}, {reference.hash}"
    provenance |= {"n_random": n_random, "made_by": "interp.safety.study"}
    facts = {
        "model": model.name,
        "search": search,
        "direction": text,
        "projection": projected,
        "ships": removal,
        "sahara": searches,
        "curves": curves,
        "ranking": by,
        "spread": {name: spread(table) for name, table in tables.items()},
    }
    rows = scores_table(projected, removal, searches).to_pandas()
    why = "its scores have different prompts; see .ships.harmful and .curves"
    return ResultRows(
        "SafetyStudy",
        rows,
        ("stack", "layer", "head"),
        provenance,
        facts,
        why_no_per_prompt=why,
        arrays={"row": np.arange(len(rows))},
        interval_by="own",
    )


def scores_table(
    projection: HeadTable, ships: ResultRows, searches: Sequence[ResultRows]
) -> HeadTable:
    """Return the scores by projection, SHIPS on both sets, and the first step of each search."""
    sets = [x.table for x in (ships.harmful, ships.harmless) if x is not None]
    return HeadTable.concat([projection, *sets, *(s.table for s in searches)])


def bounds_of_study(found: ResultRows, level: float) -> np.ndarray:
    """Return the interval of each score as its own table gives it."""
    return scores_table(found.projection, found.ships, found.sahara).bounds(level)[found.row]


def safety_study_summary(found: ResultRows) -> str:
    """Return a line for the ablation of the top heads, and for each part of the study."""
    from interp.safety.curves import damage_at, outside_band

    curves, k = found.curves, len(found.curves.removed)
    (effect, damage), beyond = (
        [of(curve, k) for curve in (curves.safety, curves.harmless)]
        for of in (damage_at, outside_band)
    )
    values = ["outside" if one else "within" for one in beyond]
    return "\n".join(
        [
            f"{found.facts['model']}: top {k} heads by {found.ranking} ablated"
            f" ({' '.join(curves.removed)}): refusal {effect:.3g} nats lower ({values[0]} the band"
            f" of random heads), harmless loss {damage:+.3g} nats/token ({values[1]} theirs)",
            *(f"  {line}" for line in str(found.search).splitlines()),
            f"  projected on {found.direction}",
            *(f"  spread of {name}: {one}" for name, one in found.spread.items()),
            f"  {found.ships}",
            *(f"  {one}" for one in found.sahara),
        ]
    )


def safety_study_figure(found: ResultRows) -> go.Figure:
    """Draw both tasks over the number of ablated heads."""
    return found.curves.plot()


present(
    "SafetyStudy",
    summary=safety_study_summary,
    plot=safety_study_figure,
    bounds=bounds_of_study,
    holds=(
        "interp.causal.pruning.result:PruningCurve",
        "interp.causal.importance:Importance",
        "interp.safety.concentration:Spread",
    ),
)
