"""Rankings of players from an importance, a table with one metric, or a list.

Like an importance, a ranking gives for each player how much the task improves with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.causal.comparison.questions import METHODS, method_of
from interp.causal.game.players import Players
from interp.causal.importance import Importance
from interp.core.columns import only
from interp.core.errors import OptionError, UnknownName
from interp.core.head import Head
from interp.core.table import HeadTable

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Ranking:
    """Players with their effect on the task, and the source of the ranking.

    Args:
        helps: positive if the task is better with the player; a magnitude has no sign.
        per_prompt: the same per prompt, if it was stored.
        about: the provenance that two rankings must share to be compared.
        clusters: a label per prompt if prompts are dependent.
    """

    name: str
    labels: tuple[str, ...]
    helps: Float[Array, " player"]
    per_prompt: Float[Array, "player prompt"] | None = field(default=None, repr=False)
    magnitude: bool = False
    players: Players | None = field(default=None, repr=False)
    about: dict[str, Any] = field(default_factory=dict, repr=False)
    clusters: tuple[str, ...] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, given: Importance | HeadTable, name: str | None = None) -> Ranking:
        """Return the ranking of an importance, or of a table with one metric of one model.

        The highest score ranks first.
        """
        if isinstance(given, Importance):
            (key,), (provenance,) = given.table.provenance, given.table.provenance.values()
            return cls(
                name or given.metric,
                given.players.labels,
                given.helps(),
                given.per_prompt,
                given.magnitude,
                given.players,
                _about(key, provenance),
                given.clusters,
            )
        if isinstance(given, HeadTable):
            return cls._of_table(given, name)
        raise OptionError(
            f"a {type(given).__name__} is not an importance; give an Importance, or a HeadTable "
            f"with "
            "one metric"
        )

    @classmethod
    def _of_table(cls, table: HeadTable, name: str | None) -> Ranking:
        metric, model = only("metric", None, table.metrics), only("model", None, table.models)
        frame, provenance = table.to_pandas(), table.provenance[model, metric]
        several = len(table.stacks) > 1
        labels = tuple(
            f"{stack} {Head(layer, head)}" if several else str(Head(layer, head))
            for stack, layer, head in zip(
                frame["stack"].tolist(),
                frame["layer"].tolist(),
                frame["head"].tolist(),
                strict=True,
            )
        )
        score = frame["score"].to_numpy(dtype=np.float64)
        missing = [x for x, s in zip(labels, score, strict=True) if np.isnan(s)]
        if missing:
            raise OptionError(
                f"{metric} has no score for {first_names(missing)} (no prompt had a row to "
                "average), so it ranks only some heads; use prompts with such rows"
            )
        kind = METHODS.get(method_of(metric))
        magnitude = "of" not in provenance or (kind is not None and not kind.signed)
        about = _about((model, metric), provenance)
        return cls(name or metric, labels, score, None, magnitude, None, about)


def given_order(ranking: Sequence[Any], labels: Sequence[str]) -> list[int]:
    """Convert a list of labels or heads to numbers into `labels`, in the list's order."""
    place = {label: i for i, label in enumerate(labels)}
    numbers: list[int] = []
    for item in ranking:
        label: str = item if isinstance(item, str) and item in place else _head(item)
        if label not in place:
            raise UnknownName("player in the ranking", label, labels)
        numbers.append(place[label])
    twice = sorted({labels[i] for i in numbers if numbers.count(i) > 1})
    if twice:
        raise OptionError(f"the ranking names {first_names(twice)} twice; name each player once")
    require_all(labels, [labels[i] for i in numbers])
    return numbers


def require_all(labels: Sequence[str], ranked: Iterable[str]) -> None:
    """Raise unless the ranking contains exactly these players."""
    known = set(ranked)
    unknown = sorted(known - set(labels))
    if unknown:
        raise UnknownName("player in the ranking", unknown[0], labels)
    missing = [x for x in labels if x not in known]
    if missing:
        raise OptionError(
            f"the ranking lacks {len(missing)} of {len(labels)} players ({first_names(missing)}); "
            f"rank them all, or restrict the players to the ranked ones with heads="
        )


def first_names(names: Sequence[str], most: int = 4) -> str:
    """Join the first few of some names."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def _head(item: Any) -> str:
    try:
        return str(Head.parse(item))
    except OptionError:
        return str(item)


def _about(key: tuple[str, str], made: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": key[0],
        "metric": key[1],
        "content_hash": made.get("content_hash"),
        "task": made.get("task"),
        "task_hash": made.get("task_hash"),
        "prompts_hash": made.get("prompts_hash"),
        "higher_is_better": made.get("higher_is_better"),
    }
