"""Copies of a model with random weights, as null models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.model.model import Model

DRAWS = 6  # default number of draws of random weights
_KEPT = 2 * 2**30  # bytes of random models that are kept in memory for the next metric
_APART = 1_000_003  # step between the seeds of draws, so that different seeds share no draws


def random_init(model: Model, seed: int) -> Model:
    """Return the same architecture with new random weights; the global generator is unchanged."""
    # imported here, so that a command can read the default number of draws without torch
    from interp.core.random_state import drawn_with
    from interp.model.locate.probe import probe
    from interp.model.model import Model

    with drawn_with(seed):
        module = model.untrained()
    name = f"{model.name} (random weights)"
    if model.ranks is None and {s.module for s in model.sites} <= {
        at for at, _ in module.named_modules()
    }:
        # The class is the same, so the sites found before still hold. A new search could miss
        # them: where random weights write almost nothing, streams have no distinct values. They
        # are searched on request, with the model that has them: now, while it is there.
        _ = [dict(site.streams) for site in model.sites]
        return Model(module, name, model.sites, model.tokenizer)
    return probe(module, name, model.tokenizer)


class RandomWeights:
    """Several random initialisations of one architecture, each made when first needed.

    Small models are kept in memory for the next metric, large ones are made again.
    """

    def __init__(self, model: Model, seed: int, draws: int = DRAWS) -> None:
        self.model, self.seed, self.draws = model, seed, draws
        self._kept: dict[int, Model] = {}

    def __len__(self) -> int:
        return self.draws

    def __iter__(self) -> Iterator[Model]:
        for draw in range(self.draws):
            yield self._drawn(draw)

    def _drawn(self, draw: int) -> Model:
        if draw in self._kept:
            return self._kept[draw]
        made = random_init(self.model, self.seed + _APART * draw)
        size = sum(p.numel() * p.element_size() for p in made.module.parameters())
        if size * (len(self._kept) + 1) <= _KEPT:
            self._kept[draw] = made
        return made
