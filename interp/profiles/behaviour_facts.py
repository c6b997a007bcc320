"""The behaviours of a head as plain data: rule, share, effect, output tokens, examples of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.statistics import RatioBootstrap
from interp.profiles.examples import examples_at
from interp.profiles.head_edges import HeadEdges
from interp.profiles.judgement import DRAWS
from interp.profiles.reading_clusters import Behaviour, clustered

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.profiles.corpus import TextWindow
    from interp.profiles.head_edges import EdgeEffects
    from interp.profiles.rules import KeyRule
    from interp.profiles.second_look import JudgedRows

EXAMPLES = 3  # of a behaviour


class BehaviourFacts:
    """Finds the behaviours of heads, and describes each.

    Args:
        model: the model.
        windows: the windows.
        judged: what the second look kept.
        rules: the rules.
        effects: effects of edges; None where none are measured.
        seed: seed of clusters and bootstrap.
    """

    def __init__(
        self,
        model: Model,
        windows: Sequence[TextWindow],
        judged: JudgedRows,
        rules: Sequence[KeyRule],
        effects: EdgeEffects | None,
        seed: int,
    ) -> None:
        self.model, self.windows, self.judged = model, windows, judged
        self.rules, self.effects, self.seed = rules, effects, seed
        names, self.cluster_of = np.unique([w.cluster for w in windows], return_inverse=True)
        self.part_of = np.array([w.part for w in windows])
        self.draws = RatioBootstrap(len(names), draws=DRAWS, seed=seed)

    def of(
        self,
        head: int,
        edges: HeadEdges,
        rules: Sequence[int],
        texts: dict[int, tuple[str, ...]],
    ) -> dict[str, Any]:
        """Return the behaviours of a head for its description; nothing for a head of one."""
        if len(rules) < 2 or not len(edges.weight):
            return {}
        clusters = clustered(edges, rules, self.cluster_of, self.part_of, self.draws, self.seed)
        if not clusters.behaviours:
            return {}
        each = [self._plain(head, edges, one, texts) for one in clusters.behaviours]
        return {
            "behaviours": {
                "by": clusters.space,
                "n_edges": len(edges.weight),
                "each": each,
            }
        }

    def _plain(
        self,
        head: int,
        edges: HeadEdges,
        one: Behaviour,
        texts: dict[int, tuple[str, ...]],
    ) -> dict[str, Any]:
        members = np.flatnonzero(one.members & edges.fired[0][:, one.rule])
        places = [(int(edges.window[at]), int(edges.row[at]), int(edges.key[at])) for at in members]
        effects = {} if self.effects is None else self.effects.of(head, edges, one.members)
        return {
            "rule": self.rules[one.rule].name,
            "phrase": self.rules[one.rule].phrase,
            "share": _interval(one.share),
            "beyond_position": _interval(one.beyond),
            "stability": one.stability,
            "examples": examples_at(
                self.model, self.windows, self.judged, head, places, texts, EXAMPLES
            ),
            **effects,
        }


def _interval(one: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("value", "low", "high"), one, strict=True))
