"""One run of metrics of attention patterns on prompts: the scores, and those of the nulls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch import Tensor

from interp.core.errors import PromptError
from interp.core.prompts import Prompts, bos_id
from interp.core.protocols import Progress
from interp.heads.declaration import BoundAnalysis
from interp.heads.engine import ROUNDING, batches, engine_used, reduce_patterns
from interp.heads.score_rows import means_by_site
from interp.heads.scoring_without_prompts import WeightsScores
from interp.model.content import tensors_hash
from interp.model.locate.sites import Site
from interp.model.random_weights import DrawMeans, RandomWeights

if TYPE_CHECKING:
    from interp.model.model import Model

SCORING, SHUFFLED = "scoring", "null: shuffled tokens"  # names of passes
PerMetric = dict[str, dict[Site, np.ndarray]]  # label -> attention -> [prompt, head]


class Pieces(Protocol):
    """Values that were computed on pieces of the prompts."""

    def whole(self, what: str, bounds: Sequence[BoundAnalysis], model: Model) -> PerMetric | None:
        """Return the values of a pass on all prompts, or None where pieces are missing."""
        ...

    def masks(self, what: str) -> dict[str, str]:
        """Return the structure of the masks in a pass by name of the attention."""
        ...


@dataclass
class PatternRun:
    """Metrics of one model on its prompts, in one forward pass per batch.

    Args:
        model: the scored model.
        prompts: the prompts, or a mapping of input tensors.
        seed: seed of the shuffled tokens.
        batch_size: prompts per forward pass.
        engine: the engine, chosen for all prompts together.
        tell: receives the progress.
        pieces: values that were computed on pieces of the prompts, read in place of a run.
    """

    model: Model
    prompts: Prompts | Mapping[str, Tensor]
    seed: int
    batch_size: int
    engine: str
    tell: Progress
    pieces: Pieces | None = None
    masks: dict[str, str] = field(default_factory=dict)
    """Structure of the mask by name of the attention, as it was recognised in the scored model."""

    def of(
        self, model: Model, prompts: Any, bounds: Sequence[BoundAnalysis], what: str
    ) -> PerMetric:
        """Return the value of every head on every prompt, by metric and attention.

        Args:
            model: the scored model, or one with random weights.
            prompts: the prompts, or those of the null.
            bounds: metrics with their options.
            what: name of the pass, for the progress and for kept pieces.
        """
        kept = None if self.pieces is None else self.pieces.whole(what, bounds, self.model)
        if kept is not None and self.pieces is not None:
            self.masks |= self.pieces.masks(what) if what == SCORING else {}
            return kept
        total = len(self.model.sites) * len(batches(model, prompts, self.batch_size))
        done = 0
        self.tell(what, 0, total)

        def advance() -> None:
            nonlocal done
            done += 1
            self.tell(what, done, total)

        found: PerMetric = {}
        if rest := [b for b in bounds if b.analysis.kind != "measurement"]:
            per_prompt = reduce_patterns(model, prompts, rest, batch_size=self.batch_size,
                                         engine=self.engine, advance=advance,
                                         masks=self.masks if what == SCORING else None)  # fmt: skip
            found = {p.bound.label: {s: p.of(s).numpy() for s in p.values} for p in per_prompt}
        if measures := [b for b in bounds if b not in rest]:
            from interp.heads.measuring import measure_layers

            found |= measure_layers(model, prompts, measures, self.batch_size, self.engine)
        return found

    def drawn(
        self,
        random: RandomWeights,
        bounds: Sequence[BoundAnalysis],
        weights: WeightsScores,
        prompts_hash: str,
    ) -> dict[str, list[DrawMeans]]:
        """Return per metric the mean of every head on every draw of random weights.

        Each draw is made once: what the metrics of weights score on it is found on the way.
        """
        asked = self.asked_draws(bounds, prompts_hash)

        def run(model: Model, labels: list[str], what: str) -> dict[str, DrawMeans]:
            mine = [b for b in bounds if b.label in labels]
            scores = self.of(model, self.prompts, mine, what) if mine else {}
            found = {label: means_by_site(values) for label, values in scores.items()}
            return found | weights.on_draw(model, labels, what)

        if weights.metrics:
            asked |= weights.asked()
        found = random.scores(asked, run)
        weights.draws = found
        return found

    def asked_draws(
        self, bounds: Sequence[BoundAnalysis], prompts_hash: str
    ) -> dict[str, dict[str, Any]]:
        """Return, by label, what scores on random weights depend on besides the architecture."""
        about = {"prompts": prompts_hash, "engine": self.engine, "batch_size": self.batch_size}
        return {b.label: b.identity() | about for b in bounds}

    def shuffled(self, bounds: Sequence[BoundAnalysis]) -> PerMetric:
        """Return the scores of the same prompts with their tokens in random order."""
        return self.of(self.model, self.shuffled_prompts(), bounds, SHUFFLED)

    def shuffled_prompts(self) -> Prompts:
        """Return the prompts with their tokens in random order.

        Raises:
            PromptError: the model does not read tokens.
        """
        if not isinstance(self.prompts, Prompts):
            raise PromptError(
                f"{self.model.name} does not read tokens, so there are none to shuffle; use "
                f"null='random-init'"
            )
        first = bos_id(self.model)
        keep = first is not None and all(p[0] == first for p in self.prompts.ids)
        return self.prompts.shuffled(self.seed, keep)

    def clusters(self) -> tuple[str, ...] | None:
        """Return the cluster of each prompt."""
        return self.prompts.clusters if isinstance(self.prompts, Prompts) else None

    def prompt_ids(self) -> tuple[str, ...] | None:
        """Return the identity of each prompt."""
        if isinstance(self.prompts, Prompts):
            return self.prompts.prompt_ids
        rows = len(next(iter(self.prompts.values())))
        one = ({name: x[i] for name, x in self.prompts.items()} for i in range(rows))
        return tuple(tensors_hash(each)[:16] for each in one)

    def about(self) -> dict[str, Any]:
        """Return the provenance of the run besides that of the model."""
        if isinstance(self.prompts, Prompts):
            longest = max(map(len, self.prompts.ids))
            what: dict[str, Any] = {"prompts": self.prompts.design, "longest": longest}
            what["prompts_hash"] = self.prompts.hash
            what["n_prompts"] = len(self.prompts)
        else:
            what = {
                "prompts": f"given {', '.join(sorted(self.prompts))}",
                "prompts_hash": tensors_hash(self.prompts),
            }
        what |= {"masks": _by_layers(self.masks)} if self.masks else {}
        what |= {"rounding": ROUNDING} if self.engine == "fused" else {}
        return what | {"seed": self.seed, "engine": engine_used(self.model, self.engine)}


def _by_layers(masks: Mapping[str, str]) -> str:
    """Return one text for all attentions, or the attentions of each text."""
    kinds: dict[str, list[str]] = {}
    for name, kind in masks.items():
        kinds.setdefault(kind, []).append(name)
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{kind} in {', '.join(names)}" for kind, names in kinds.items())
