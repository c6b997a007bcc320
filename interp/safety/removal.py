"""SHIPS: change of the next token's distribution by ablating one head, per prompt and set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from interp.causal.ablation import NULLS, random_game
from interp.causal.game.game import Game
from interp.causal.importance import Importance, make_importance
from interp.causal.measures import kl_to_clean
from interp.core.errors import NonFiniteError, OptionError, UnknownName
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.core.steps import finishing
from interp.model.calls.sites import Site
from interp.model.model_argument import takes_model
from interp.safety.prompts import PromptSets

if TYPE_CHECKING:
    from interp.causal.game.interface import RunEstimate
    from interp.model.model import Model

# The authors' forms, in the limit of their small factor (1e-4 to 1e-10): queries or keys times
# nearly zero leave even attention, values times nearly zero leave nothing.
FORMS = {"q": "uniform-attention", "k": "uniform-attention", "v": "zero"}


def ships_rows(harmful: Importance, harmless: Importance | None = None) -> ResultRows:
    """Return the rows of both sets of prompts; see `ships_scores`."""
    import pandas as pd

    sets = {"harmful": harmful} | ({} if harmless is None else {"harmless": harmless})
    rows = pd.concat([x.to_pandas().assign(prompts=name) for name, x in sets.items()])
    facts = {"harmful": harmful, "harmless": harmless}
    return ResultRows(
        "Ships",
        rows.reset_index(drop=True),
        ("player", "prompts"),
        harmful.provenance,
        facts,
        why_no_per_prompt="its two sets have different prompts; .harmful and .harmless have values",
        arrays={"row": np.arange(len(rows))},
        interval_by="own",
    )


def bounds_of_ships(found: ResultRows, level: float) -> np.ndarray:
    """Return the confidence interval of each row over clusters of prompts, by t quantiles."""
    sets = [x for x in (found.harmful, found.harmless) if x is not None]
    return np.concatenate([x.bounds(level) for x in sets])[found.row]


@takes_model
@finishing()
def ships_scores(
    model: Model,
    harmful: Any,
    harmless: Any = None,
    *,
    kind: str = "zero",
    null: Literal["random-init", "none"] = "random-init",
    progress: Progress | None = None,
    announce: Callable[[RunEstimate], None] | None = None,
    **options: Any,
) -> ResultRows:
    """Measure KL(clean || without the head) of the next token after each prompt, for every head.

    It is exact, in nats; activations below the head are reused from the clean run. The authors add
    1e-12 inside their logarithm, which caps a term at about 27 nats; here nothing is added.

    Args:
        model: The model.
        harmful: Prompts that the model should decline: texts, ids or `Prompts`.
        harmless: Prompts that it should answer. KL on harmful prompts alone mixes refusal with
            everything else a head does, so look at both.
        kind: "zero" by default; or any of `interp.causal.game.interventions`; or the authors'
            "q", "k" (undifferentiated attention: even weights over the keys in sight, which is
            "uniform-attention") and "v" (a scaled contribution, which is "zero").
        null: "random-init" for the same scores on random weights, or "none".
        progress: Called with the name of the current work, how much is done and how much there is.
        announce: Called with the estimated cost before the run.
        **options: Options of `Game`: stack, heads, resume, max_tokens, reference, ...

    Returns:
        One row per head and set of prompts, first the harmful ones. Facts: harmful and harmless,
        the importances with the KL of every head on every prompt; harmless is None where no such
        prompts were given.

    Reference: Zhou et al. 2025, "On the Role of Attention Heads in Large Language Model Safety"
    (arXiv 2410.13708).

    Raises:
        PromptError: A prompt does not fit the model, or the sets coincide.
        UnknownName: There is no such kind.

    Unit: nats.

    Cost: One forward pass per head and prompt above the head's layer.

    Null: harmless prompts; random weights.

    Not for: harmful prompts alone: damage to everything looks the same.
    """
    if null not in NULLS:
        raise UnknownName("null", null, NULLS)
    kind = FORMS.get(kind, kind)
    if harmless is not None:
        sets = PromptSets.of(model, harmful, harmless)
        prompt_sets = {"harmful": sets.harmful, "harmless": sets.harmless}
    else:
        prompt_sets = {"harmful": Prompts.of(harmful, model)}
    scores = {
        name: _of(model, name, prompts, kind, null, progress, announce, options)
        for name, prompts in prompt_sets.items()
    }
    return ships_rows(scores["harmful"], scores.get("harmless"))


def _of(
    model: Model,
    name: str,
    prompts: Prompts,
    kind: str,
    null: str,
    progress: Progress | None,
    announce: Callable[[RunEstimate], None] | None,
    options: dict[str, Any],
) -> Importance:
    game = Game(model, kl_to_clean(model, prompts, name=f"kl_on_{name}"), kind=kind, **options)
    if game.players.kind != "heads":
        raise OptionError(
            f"players={game.players.kind!r} is not supported: SHIPS ablates heads one by one; give "
            "players='heads'"
        )
    gates = 1 - torch.eye(len(game), dtype=torch.double)
    if announce is not None:
        announce(game.estimate(gates))
    values = game.values(gates, progress=progress).numpy()
    beside, notes = None, {}
    if null == "random-init":
        try:
            beside = random_game(game, **options).values(gates, progress=progress).numpy()
        except NonFiniteError as error:  # random weights may overflow where trained ones do not
            notes = {"null": f"none: {error}"}
    return make_importance(
        game,
        values,
        method="ships",
        options={},
        of="removal",
        made_by="interp.safety.ships_scores",
        null=beside,
        null_kind="none" if beside is None else "random-init",
        notes=notes,
        unit=game.task.unit,
    )


def trials(
    model: Model, sets: PromptSets, kind: str, *, both: bool
) -> dict[str, dict[Site, torch.Tensor]]:
    """Compute SHIPS on harmful (and, if `both`, harmless) prompts, `{site: [prompt, head]}`."""
    scores = ships_scores(
        model, sets.harmful, sets.harmless if both else None, kind=kind, null="none"
    )
    return {
        name: {
            site: torch.from_numpy(x.per_prompt[index.numpy()].T.copy())
            for site, index in x.players.member.items()
        }
        for name, x in (("harmful", scores.harmful), ("harmless", scores.harmless))
        if x is not None
    }


def ships_summary(found: ResultRows) -> str:
    """Return the heads of the largest effects on harmful prompts, with those on harmless ones."""
    first = [(row["player"], row["score"]) for row in found.harmful.top(5)]
    best = ", ".join(f"{label} {x:.3g}" for label, x in first)
    text = f"SHIPS on {found.harmful.per_prompt.shape[1]} harmful prompts, nats: {best}"
    if found.harmless is not None:
        labels = list(found.harmless.players.labels)
        same = ", ".join(
            f"{label} {found.harmless.score[labels.index(label)]:.3g}" for label, _ in first
        )
        text += f"; the same heads on harmless prompts: {same}"
    return text


present(
    "Ships",
    summary=ships_summary,
    bounds=bounds_of_ships,
    holds=("interp.causal.importance:Importance",),
)
