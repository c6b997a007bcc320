"""Effects of a head on the corpus, and what it writes: numbers with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError
from interp.profiles.ablation_look import AblationSums, ablation_look
from interp.profiles.corpus import FEWEST
from interp.profiles.effect_numbers import Estimates, HeadEffects, exact_numbers
from interp.profiles.gradient_look import GradientSums, gradient_look
from interp.profiles.head_edges import EdgeEffects
from interp.profiles.predictions import Prediction
from interp.profiles.writes import HeadWrites

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int

    from interp.model.calls.sites import Site
    from interp.profiles.corpus import TextWindow
    from interp.profiles.explain import Description
    from interp.profiles.first_look import Look
    from interp.profiles.steps import ProfileSteps


@dataclass(frozen=True)
class EffectOptions:
    """Settings of the measurements beside the pattern.

    Args:
        prediction: what the model predicts, or why nothing is measured.
        n_ablated: heads that are ablated exactly, those with the largest estimates elsewhere.
        n_documents: most documents on which they are; those of the estimates, where heads are asked
            for.
        asked: heads that are ablated whatever their estimate, by their place; None to choose.

    Raises:
        OptionError: a number is too small.
    """

    prediction: Prediction | str
    n_ablated: int
    n_documents: int
    asked: tuple[int, ...] | None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("n_ablated", self.n_ablated, 0),
            ("n_ablation_documents", self.n_documents, FEWEST),
        ):
            if value < least:
                raise OptionError(f"{name}={value} is too small; give at least {least}")

    @property
    def settings(self) -> str:
        """The settings on which the steps depend, for their names."""
        asked = "" if self.asked is None else ",".join(map(str, self.asked))
        return f"{self.n_ablated if self.asked is None else asked} on {self.n_documents}"

    def n_steps(self, windows: Sequence[TextWindow]) -> int:
        """Return the number of windows that are run for the effects."""
        few = len(self.ablated(windows))
        ablated = self.n_ablated if self.asked is None else len(self.asked)
        estimated = len(windows) if self.asked is None else few
        return 0 if isinstance(self.prediction, str) else estimated + (few if ablated else 0)

    def estimated(self, windows: Sequence[TextWindow]) -> set[int]:
        """Return the numbers of the windows that are read for the estimates."""
        return {*range(len(windows))} if self.asked is None else self.ablated(windows)

    def ablated(self, windows: Sequence[TextWindow]) -> set[int]:
        """Return the numbers of the windows on which heads are ablated.

        Heads that are chosen by their estimates are ablated on at most half of the documents of
        each part, and chosen on the others, which are near-duplicates of none of them.
        """
        if self.asked is not None:
            return {*range(min(self.n_documents, len(windows)))}
        clusters: dict[int, list[int]] = {}
        for at, window in enumerate(windows):
            clusters.setdefault(window.cluster, []).append(at)
        numbers: set[int] = set()
        for part in (0, 1):
            mine = [x for x in clusters.values() if windows[x[0]].part == part]
            # one of every cluster first
            rounds = zip_longest(*mine[: len(mine) // 2])
            few = [at for members in rounds for at in members if at is not None]
            numbers |= {*few[: self.n_documents // 2]}
        return numbers


@dataclass(frozen=True, eq=False)
class Effects:
    """Effects of all heads that were looked at, of their edges, and how they were measured."""

    heads: Mapping[int, HeadEffects]
    facts: Mapping[str, Any]
    edges: EdgeEffects | None = None

    def of(self, place: int) -> HeadEffects:
        """Return the effects of the head of a place; empty if none were measured."""
        return self.heads.get(place, HeadEffects())


def measure_effects(
    look: Look,
    windows: Sequence[TextWindow],
    groups: Sequence[Sequence[int]],
    others: Callable[[int], TextWindow],
    descriptions: Sequence[Description],
    options: EffectOptions,
    edge_rows: Sequence[Int[np.ndarray, " edge"]],
    seed: int,
    steps: ProfileSteps,
) -> Effects:
    """Measure what the loss of predicted tokens loses without each head, and what heads write."""
    prediction = options.prediction
    if isinstance(prediction, str):
        return Effects({}, {"left_out": prediction})
    writes = HeadWrites(look.model, look.sites, windows[0].ids)
    # of a masked model the edges were read on another text: that without masks
    of_edges = prediction.mask is None
    read, settings = _within(groups, options.estimated(windows)), options.settings
    held = options.ablated(windows)
    parts = steps.phase(
        [f"gradients {at} of {settings}" for at in range(len(read))],
        lambda at: gradient_look(
            look,
            writes,
            [prediction.of(windows[i]) for i in read[at]],
            [edge_rows[i] if of_edges else edge_rows[i][:0] for i in read[at]],
            steps.advance,
        ),
        GradientSums,
        [len(group) for group in read],
    )
    estimates = Estimates(look, writes, windows, read, parts, prediction, seed)
    known = {windows[i].cluster for i in held}
    apart = [windows[i].cluster not in known for group in read for i in group]
    chosen = options.asked
    if chosen is None:
        chosen = estimates.largest(options.n_ablated, apart)
    order = [i for group in read for i in group]
    edges = EdgeEffects(estimates, order) if of_edges else None
    if not chosen:
        return Effects(estimates.heads(), estimates.facts, edges)
    heads = [_head_at(look, place) for place in chosen]
    few = _within(groups, held)
    sums = steps.phase(
        [f"ablations {at} of {settings}" for at in range(len(few))],
        lambda at: ablation_look(
            look,
            [windows[i] for i in few[at]],
            [prediction.of(windows[i]) for i in few[at]],
            [others(i) for i in few[at]],
            descriptions[1 - windows[few[at][0]].part],
            heads,
            estimates.mean,
            steps.advance,
        ),
        AblationSums,
        [len(group) for group in few],
    )
    ablated = [i for group in few for i in group]
    exact = exact_numbers(chosen, sums, [windows[i].cluster for i in ablated], seed)
    by_head = {place: one.joined(exact.get(place)) for place, one in estimates.heads().items()}
    facts = {
        **estimates.facts,
        "ablated_heads": len(chosen),
        "ablation_documents": len(ablated),
        "ablation_queries": int(sum(x.queries.sum() for x in sums)),
    }
    if options.asked is None:
        facts["choice_documents"] = sum(apart)
    return Effects(by_head, facts, edges)


def _within(groups: Sequence[Sequence[int]], kept: set[int]) -> list[list[int]]:
    """Return the kept windows of each group; groups without any are left out."""
    chosen = [[i for i in group if i in kept] for group in groups]
    return [group for group in chosen if group]


def _head_at(look: Look, place: int) -> tuple[Site, int]:
    """Return site and number of the head of a place."""
    return next(
        (site, place - at.start) for site, at in look.places.items() if at.start <= place < at.stop
    )
