"""Scores of random weights that `interp score --out` kept: the draws behind a metric's null."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.heads.roles.decide import base_name
from interp.report.atlas.document import Metric, Model

if TYPE_CHECKING:
    from interp.core.table import HeadTable

VALUES = 400  # of the draws of one metric, evenly chosen from the sorted ones


@dataclass(frozen=True)
class KeptNull:
    """Mean scores of the heads of random weights by one metric, draw by draw.

    Args:
        metric: name of the metric, without its options.
        options: its options.
        prompts: hash of the prompts; None for a metric that reads none.
        seed: seed of the first draw.
        draws: per draw, the scores of the heads by name of the attention, such as `decoder.0`.
    """

    metric: str
    options: Mapping[str, Any]
    prompts: str | None
    seed: int
    draws: tuple[Mapping[str, np.ndarray], ...]

    def fits(self, metric: str, made: Mapping[str, Any], heads: Mapping[str, int]) -> bool:
        """Tell whether these draws are of a metric of a table.

        Args:
            metric: its label.
            made: its provenance.
            heads: the number of heads by name of the attention.
        """
        mine = {site: len(x) for site, x in self.draws[0].items()} if self.draws else {}
        return (
            self.metric == base_name(metric)
            and dict(self.options) == dict(made.get("options") or {})
            and self.seed == made.get("seed", 0)
            and self.prompts in (None, made.get("prompts_hash"))
            and mine == dict(heads)
        )


def read_nulls(folder: Path) -> list[KeptNull]:
    """Read the kept nulls of a results folder; files that are damaged are left out."""
    found = []
    for path in sorted((folder / "nulls").glob("*.json")):
        try:
            found.append(_null(json.loads(path.read_bytes())))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # `interp score` sets it aside; a card then shows the nulls of the table
    return found


def _null(document: Mapping[str, Any]) -> KeptNull:
    key = document["key"]
    draws = tuple(
        {site: np.frombuffer(base64.b64decode(x), "<f8") for site, x in draw.items()}
        for draw in document["values"]
    )
    of = key["of"]
    return KeptNull(of["metric"], of["options"], of.get("prompts"), int(key["seed"]), draws)


def add_draws(model: Model, table: HeadTable, kept: Sequence[KeptNull]) -> None:
    """Add to each metric of a model the scores of the heads of its draws of random weights.

    Metrics to which several kept files fit, such as those of two models of one shape, get none.

    Args:
        model: the model of the document; its metrics change.
        table: its scores.
        kept: the nulls of the folders.
    """
    names = [stack["name"] for stack in model["stacks"]]
    heads: dict[str, int] = {}
    for place in model["heads"]:
        site = f"{names[place['stack']]}.{place['layer']}"
        heads[site] = heads.get(site, 0) + 1
    made = {metric: about for (_, metric), about in table.provenance.items()}
    for metric in model["metrics"]:
        about = made.get(metric["name"])
        fitting = [one for one in kept if about and one.fits(metric["name"], about, heads)]
        if len(fitting) == 1 and about is not None:
            n = int(about.get("null_draws") or 0)
            _add(metric, fitting[0].draws[:n])


def _add(metric: Metric, draws: Sequence[Mapping[str, np.ndarray]]) -> None:
    values = [x for draw in draws for x in draw.values()]
    every = np.sort(np.concatenate(values)) if values else np.zeros(0)
    every = every[np.isfinite(every)]
    if len(every):
        some = np.linspace(0, len(every) - 1, min(len(every), VALUES)).round().astype(int)
        metric["drawn_values"] = every[some].tolist()
        metric["draws"] = len(draws)
