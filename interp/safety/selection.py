"""Choice of the refusal direction by the effect of removing and adding each candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.causal.measures import divergence
from interp.core.errors import OptionError, PromptError
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model
from interp.safety.direction import LAYER_SHARE, Direction, candidates
from interp.safety.prompts import PromptSets
from interp.safety.streams import last_logits, reading_sites, with_added, without
from interp.safety.task import refusal_ids, token_log_odds

if TYPE_CHECKING:
    from interp.model.model import Model

FILTERS = ("length", "layer", "kl", "added")


def chosen_direction(found: ResultRows, row: int | None = None) -> Direction:
    """Return the direction that `search_direction` chose, or that of another row.

    Raises:
        OptionError: No candidate passes; the message counts those that each filter stops.
    """
    found.require_kind("DirectionSearch", "search_direction")
    if row is None and not found.chosen.any():
        raise OptionError(
            f"none of {len(found)} candidate directions passes: {stopped(found)}; look at "
            ".to_pandas(), and loosen a bound only with a reason"
        )
    if row is not None and not 0 <= row < len(found):
        raise OptionError(f"there is no row {row}; the candidates are rows 0 to {len(found) - 1}")
    at = int(found.chosen.argmax()) if row is None else row
    vector = torch.from_numpy(found.vectors[at])
    return Direction(vector, int(found.layer[at]), int(found.position[at]))


def stopped(found: ResultRows) -> str:
    """Describe the number of candidates that each filter stops; several may stop one."""
    values = {
        "length": "have no length",
        "layer": f"lie at or above {found.filters['layer_share']:g} of the layers",
        "kl": f"change harmless answers by more than {found.filters['kl']:g} nats",
        "added": f"do not make harmless prompts refused (log odds below "
        f"{found.filters['added']:g})",
    }
    fails = [text.split() for text in found.columns["fails"]]
    counts = {name: sum(name in each for each in fails) for name in FILTERS}
    return ", ".join(f"{counts[name]} {values[name]}" for name in FILTERS)


@takes_model
def search_direction(
    model: Model,
    harmful: Any,
    harmless: Any,
    refusal_tokens: Sequence[int | str] | int | str | None = None,
    *,
    positions: Sequence[int] | None = None,
    held_out: float = 0.25,
    filtered: bool = True,
    kl: float = 0.1,
    added: float = 0.0,
    layer_share: float = LAYER_SHARE,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> ResultRows:
    """Find the refusal direction of a model by the selection of Arditi et al.

    Candidates are the differences of means before each layer at each position of the ending that
    all prompts share. The candidate is chosen whose removal from the stream leaves the least
    refusal of harmful prompts, among those that pass: it lies below `layer_share` of the layers
    (rounded down); adding it makes harmless prompts refused on average (log odds at least `added`);
    removing it changes the next token of harmless prompts by at most `kl` nats. Three runs over the
    validation prompts are needed per candidate.

    Args:
        model: The model.
        harmful: Prompts that the model should decline: texts (see `templated`), ids or `Prompts`.
        harmless: Prompts that it should answer; the sets may differ in size.
        refusal_tokens: Tokens that begin a refusal; by default those of the model's config.
        positions: Positions of the candidates, counted from the end.
        held_out: Share of each set that is held out for the choice and not used for the means.
        filtered: Drop harmful prompts that the model does not decline, and harmless ones that it
            declines, as the authors do, so that the direction separates declined from answered.
        kl: Limit of the change of harmless prompts by removing the direction, in nats.
        added: Least refusal log odds of harmless prompts with the direction added.
        layer_share: Share of the layers below which the direction must lie.
        seed: Seed of the split.
        progress: Called with the name of the current work, how much is done and how much there is.

    Returns:
        One row per candidate, in the order of the search: layer, position, length (its norm),
        ablated (the score: mean refusal log odds of harmful prompts with the direction removed from
        the stream, so the lowest are the best), added (of harmless prompts with it added before its
        layer), kl (of the next token of harmless prompts, clean against removed, in nats), fails
        (the filters that it does not pass) and chosen. Array: vectors. Facts: refused, the share of
        the harmful and of the harmless prompts that the model declines, before prompts are dropped;
        clean, the mean log odds of those used for the choice; used, the numbers of prompts;
        filters, their limits; refusal_tokens, ids. `chosen_direction` returns the direction.

    Reference: Arditi et al. 2024, "Refusal in Language Models Is Mediated by a Single Direction"
    (their select_direction.py; without the small numbers it adds inside logarithms).

    Raises:
        PromptError: The sets coincide, or the model declines or answers fewer than two prompts.
        OptionError: There are no refusal tokens, or a limit is out of range.

    Unit: nats of refusal log odds.

    Cost: Three runs over the validation prompts per candidate (layers x positions).

    Null: harmless prompts, by the filters.

    Not for: prompts that differ in more than harm (length, topic, form): the direction then
    separates those.
    """
    if kl < 0 or not 0 < layer_share <= 1:
        raise OptionError(
            f"kl={kl}, layer_share={layer_share}; kl must be at least 0, and layer_share in (0, 1]"
        )
    ids = refusal_ids(model, refusal_tokens)
    sets = PromptSets.of(model, harmful, harmless)
    odds = [token_log_odds(last_logits(model, p), ids) for p in (sets.harmful, sets.harmless)]
    refused = float((odds[0] > 0).double().mean()), float((odds[1] > 0).double().mean())
    if filtered:
        sets = PromptSets(
            _kept(model, sets.harmful, odds[0] > 0, "harmful prompts that it declines"),
            _kept(model, sets.harmless, odds[1] < 0, "harmless prompts that it answers"),
        )
    train, chosen_on = sets.halves(seed, held_out)
    clean = last_logits(model, chosen_on.harmless)
    directions = candidates(model, train, positions)
    limit = int(len(reading_sites(model)) * layer_share)
    allowed = [site.layer for site in reading_sites(model)][:limit]
    bounds = {"kl": kl, "added": added, "layer_share": layer_share}
    tried = []
    for done, direction in enumerate(directions):
        if progress is not None:
            progress("candidate directions", done, len(directions))
        tried.append(_try(model, direction, chosen_on, clean, ids, bounds, allowed))
    before = token_log_odds(last_logits(model, chosen_on.harmful), ids), token_log_odds(clean, ids)
    used = {
        "harmful for the means": len(train.harmful),
        "harmless for the means": len(train.harmless),
        "harmful for the choice": len(chosen_on.harmful),
        "harmless for the choice": len(chosen_on.harmless),
    }
    provenance = model_provenance(model) | sets.about()
    provenance |= bounds | {"filtered": filtered, "held_out": held_out, "seed": seed}
    provenance |= {"refusal_tokens": list(ids), "made_by": "interp.safety.search_direction"}
    means = float(before[0].mean()), float(before[1].mean())
    passing = [at for at, row in enumerate(tried) if not row["fails"]]
    best = min(passing, key=lambda at: tried[at]["ablated"]) if passing else None
    columns: dict[str, Any] = {name: [row[name] for row in tried] for name in tried[0]}
    columns["chosen"] = [at == best for at in range(len(tried))]
    facts = {
        "metric": "refusal with the direction removed",
        "unit": "nats",
        "n": used["harmful for the choice"],
        "refused": refused,
        "clean": means,
        "used": used,
        "filters": bounds,
        "refusal_tokens": ids,
    }
    return ResultRows(
        "DirectionSearch",
        columns,
        ("layer", "position"),
        provenance,
        facts,
        why_no_per_prompt="the search keeps means over prompts only",
        by="lowest",
        arrays={"vectors": np.stack([direction.vector.cpu().numpy() for direction in directions])},
        same_as={"score": "ablated"},
    )


def _kept(model: Model, prompts: Prompts, keep: Tensor, what: str) -> Prompts:
    ids = tuple(p for p, k in zip(prompts.ids, keep.tolist(), strict=True) if k)
    if len(ids) < 2:
        raise PromptError(
            f"{model.name} has {len(ids)} of {len(prompts)} {what} (by its next token); two "
            "are needed: check the refusal tokens and the template, or set filtered=False"
        )
    return Prompts(ids, prompts.design)


def _try(
    model: Model,
    direction: Direction,
    sets: PromptSets,
    clean: Tensor,
    ids: tuple[int, ...],
    bounds: dict[str, float],
    allowed: list[int],
) -> dict[str, Any]:
    fails = [] if direction.layer in allowed else ["layer"]
    row = {"layer": direction.layer, "position": direction.position, "length": direction.length}
    if not direction.length > 0:  # there is nothing to remove or add
        nothing = dict.fromkeys(("ablated", "added", "kl"), float("nan"))
        return row | nothing | {"fails": " ".join(["length", *fails])}
    with without(model, direction.vector):
        ablated = float(token_log_odds(last_logits(model, sets.harmful), ids).mean())
        after = last_logits(model, sets.harmless)
    kl = float(divergence(clean, after).mean())
    with with_added(model, direction.layer, direction.vector):
        added = float(token_log_odds(last_logits(model, sets.harmless), ids).mean())
    fails += ["kl"] * (kl > bounds["kl"]) + ["added"] * (added < bounds["added"])
    return row | {"ablated": ablated, "added": added, "kl": kl, "fails": " ".join(fails)}


def direction_search_summary(found: ResultRows) -> str:
    """Return what the model declines, what each filter stops, and the direction chosen."""
    lines = [
        f"declined: {found.refused[0]:.0%} of harmful, {found.refused[1]:.0%} of harmless",
        f"prompts: {', '.join(f'{n} {what}' for what, n in found.used.items())}",
        f"refusal log odds: harmful {found.clean[0]:+.3g}, harmless {found.clean[1]:+.3g}",
        f"filters: of {len(found)} candidates {stopped(found)}",
    ]
    best = next((row for row in found if row["chosen"]), None)
    if best is None:
        return "\n".join([*lines, "chosen: none passes"])
    lines.append(
        f"chosen: layer {best['layer']}, position {best['position']}: removed, harmful "
        f"{best['ablated']:+.3g}; added, harmless {best['added']:+.3g}; KL on harmless "
        f"{best['kl']:.3g}"
    )
    return "\n".join(lines)


present("DirectionSearch", summary=direction_search_summary)
