"""Choose among candidate directions by what taking them out and adding them does to refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch import Tensor

from interp.causal.measures import divergence
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.result import Result
from interp.model.content import model_provenance
from interp.model.given import takes_model
from interp.safety.direction import LAYER_SHARE, Direction, candidates
from interp.safety.prompts import PromptSets
from interp.safety.streams import last_logits, reading_sites, with_added, without
from interp.safety.task import refusal_ids, token_log_odds

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

FILTERS = ("length", "layer", "kl", "added")


@dataclass(frozen=True, eq=False)
class TriedDirection:
    """One candidate and what it does, on prompts it was not made from.

    Args:
        ablated: mean refusal log odds of harmful prompts with the direction taken out of the
            stream; the lower, the more of refusal it carries.
        added: mean refusal log odds of harmless prompts with it added before its layer.
        kl: mean KL from the clean next token of harmless prompts to that with it taken out, nats.
        fails: the filters it does not pass, of `FILTERS`.
    """

    direction: Direction
    ablated: float
    added: float
    kl: float
    fails: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class DirectionSearch(Result):
    """Candidate refusal directions, the filters that each passes, and the chosen one.

    Its rows are candidates, in the order of the search; the score is the mean refusal log odds of
    harmful prompts with the candidate removed, so the lowest are the best.

    Args:
        refused: of the harmful and of the harmless prompts the share that the model declines,
            before anything is dropped.
        clean: mean refusal log odds of the harmful and the harmless prompts that selection is on.
        used: prompts of each set behind the means and behind the selection.
        limits: what the filters ask for.
    """

    tried: tuple[TriedDirection, ...]
    refused: tuple[float, float]
    clean: tuple[float, float]
    used: dict[str, int]
    limits: dict[str, float]
    refusal_tokens: tuple[int, ...]
    made: dict[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "the search keeps means over prompts only"
    _units = ("layer", "position")
    _per_row = ("tried",)
    _by = "lowest"
    _holds = (TriedDirection, Direction)
    _same_as = MappingProxyType({"score": "ablated"})

    @property
    def provenance(self) -> dict[str, Any]:  # type: ignore[override]
        """The model, prompts and settings of the search."""
        return self.made

    def _facts(self) -> Mapping[str, Any]:
        return {
            "metric": "refusal with the direction removed",
            "unit": "nats",
            "n": self.used["harmful for the choice"],
        }

    @property
    def passing(self) -> tuple[TriedDirection, ...]:
        """Those that pass every filter, the most refusal taken out first."""
        return tuple(sorted((t for t in self.tried if not t.fails), key=lambda t: t.ablated))

    @property
    def direction(self) -> Direction:
        """The chosen direction.

        Raises:
            OptionError: no candidate passes, with how many each filter stops.
        """
        if not self.passing:
            raise OptionError(
                f"none of {len(self.tried)} candidate directions passes: {self.filters()}; "
                "look at .to_pandas(), and loosen a bound only with a reason"
            )
        return self.passing[0].direction

    def filters(self) -> str:
        """How many candidates each filter stops; one may be stopped by several."""
        told = {
            "length": "have no length",
            "layer": f"lie at or above {self.limits['layer_share']:g} of the layers",
            "kl": f"change harmless answers by more than {self.limits['kl']:g} nats",
            "added": f"do not make harmless prompts refused (log odds below "
            f"{self.limits['added']:g})",
        }
        counts = {name: sum(name in t.fails for t in self.tried) for name in FILTERS}
        return ", ".join(f"{counts[name]} {told[name]}" for name in FILTERS)

    def _rows(self) -> pd.DataFrame:
        """One row per candidate."""
        import pandas as pd

        rows = [
            {
                "layer": t.direction.layer, "position": t.direction.position,
                "length": t.direction.length, "ablated": t.ablated, "added": t.added, "kl": t.kl,
                "fails": " ".join(t.fails),
                "chosen": bool(self.passing) and t is self.passing[0],
            }
            for t in self.tried
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        lines = [
            f"declined: {self.refused[0]:.0%} of harmful, {self.refused[1]:.0%} of harmless",
            f"prompts: {', '.join(f'{n} {what}' for what, n in self.used.items())}",
            f"refusal log odds: harmful {self.clean[0]:+.3g}, harmless {self.clean[1]:+.3g}",
            f"filters: of {len(self.tried)} candidates {self.filters()}",
        ]
        if self.passing:
            best = self.passing[0]
            lines.append(
                f"chosen: layer {best.direction.layer}, position {best.direction.position}: taken "
                f"out, harmful {best.ablated:+.3g}; added, harmless {best.added:+.3g}; "
                f"KL on harmless {best.kl:.3g}"
            )
        else:
            lines.append("chosen: none passes")
        return "\n".join(lines)


@takes_model
def search_direction(
    model: Model,
    harmful: Any,
    harmless: Any,
    refusal_tokens: Sequence[int | str] | int | str | None = None,
    *,
    positions: Sequence[int] | None = None,
    validation: float = 0.25,
    filtered: bool = True,
    kl: float = 0.1,
    added: float = 0.0,
    layer_share: float = LAYER_SHARE,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> DirectionSearch:
    """The refusal direction of a model, chosen as Arditi et al. choose it.

    Candidates are the differences of means before each layer at each position of the ending that
    all prompts share. Chosen is the one with the least refusal of harmful prompts when it is taken
    out of the stream, among those that pass: it lies below `layer_share` of the layers (rounded
    down); adding it makes harmless prompts refused on average (log odds at least `added`); taking
    it out changes the next token of harmless prompts by at most `kl` nats. Three runs over the
    validation prompts per candidate.

    Args:
        harmful, harmless: texts (see `templated`), ids or `Prompts`; sets of any two sizes.
        refusal_tokens: that begin a refusal; those of the model's config unless given.
        positions: counted from the end.
        validation: share of each set that is kept for the choice and not used for the means.
        filtered: drop harmful prompts that the model does not decline, and harmless ones that it
            does, as the authors do: then the direction tells apart what the model does.
        seed: of the split.

    Reference: Arditi et al. 2024, "Refusal in Language Models Is Mediated by a Single Direction"
    (their select_direction.py; without the small numbers it adds inside logarithms).

    Raises:
        PromptError: sets that coincide; fewer than two prompts that the model declines or answers.
        OptionError: no refusal tokens, or bounds that make no sense.

    Unit: nats of refusal log odds.

    Cost: Three runs over the validation prompts per candidate (layers x positions).

    Null: harmless prompts, by the filters.

    Not for: prompts that differ in more than harm (length, topic, form): the direction then
    separates those.
    """
    if kl < 0 or not 0 < layer_share <= 1:
        raise OptionError(f"kl={kl}, layer_share={layer_share}; at least 0, and in (0, 1]")
    ids = refusal_ids(model, refusal_tokens)
    sets = PromptSets.of(model, harmful, harmless)
    odds = [token_log_odds(last_logits(model, p), ids) for p in (sets.harmful, sets.harmless)]
    refused = float((odds[0] > 0).double().mean()), float((odds[1] > 0).double().mean())
    if filtered:
        sets = PromptSets(
            _kept(model, sets.harmful, odds[0] > 0, "harmful prompts that it declines"),
            _kept(model, sets.harmless, odds[1] < 0, "harmless prompts that it answers"),
        )
    train, chosen_on = sets.halves(seed, validation)
    clean = last_logits(model, chosen_on.harmless)
    found = candidates(model, train, positions)
    limit = int(len(reading_sites(model)) * layer_share)
    allowed = [site.layer for site in reading_sites(model)][:limit]
    bounds = {"kl": kl, "added": added, "layer_share": layer_share}
    tried = []
    for done, direction in enumerate(found):
        if progress is not None:
            progress("candidate directions", done, len(found))
        tried.append(_try(model, direction, chosen_on, clean, ids, bounds, allowed))
    before = token_log_odds(last_logits(model, chosen_on.harmful), ids), token_log_odds(clean, ids)
    used = {
        "harmful for the means": len(train.harmful),
        "harmless for the means": len(train.harmless),
        "harmful for the choice": len(chosen_on.harmful),
        "harmless for the choice": len(chosen_on.harmless),
    }
    made = model_provenance(model) | sets.about()
    made |= bounds | {"filtered": filtered, "validation": validation, "seed": seed}
    made |= {"refusal_tokens": list(ids), "made_by": "interp.safety.search_direction"}
    means = float(before[0].mean()), float(before[1].mean())
    return DirectionSearch(tuple(tried), refused, means, used, bounds, ids, made)


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
) -> TriedDirection:
    fails = () if direction.layer in allowed else ("layer",)
    if not direction.length > 0:  # nothing to take out or add
        return TriedDirection(
            direction, float("nan"), float("nan"), float("nan"), ("length", *fails)
        )
    with without(model, direction.vector):
        ablated = float(token_log_odds(last_logits(model, sets.harmful), ids).mean())
        after = last_logits(model, sets.harmless)
    kl = float(divergence(clean, after).mean())
    with with_added(model, direction.layer, direction.vector):
        added = float(token_log_odds(last_logits(model, sets.harmless), ids).mean())
    fails += ("kl",) if kl > bounds["kl"] else ()
    fails += ("added",) if added < bounds["added"] else ()
    return TriedDirection(direction, ablated, added, kl, fails)
