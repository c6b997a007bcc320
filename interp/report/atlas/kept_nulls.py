"""Scores of random weights that `interp score --out` kept: the draws behind a metric's null."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import StoreError
from interp.core.files import read_bytes
from interp.core.json_document import stored_document
from interp.heads.roles.decide import base_name
from interp.model.random_weights import file_start, null_folder
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
        shared: True for a file of the user's cache, which other runs on this machine wrote.
    """

    metric: str
    options: Mapping[str, Any]
    prompts: str | None
    seed: int
    draws: tuple[Mapping[str, np.ndarray], ...]
    shared: bool = False

    def fits(self, metric: str, made: Mapping[str, Any], heads: Mapping[str, int]) -> bool:
        """Tell whether these draws are of a metric of a table."""
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
    return _read(sorted((folder / "nulls").glob("*.json")))


def read_shared_nulls(metrics: Iterable[str]) -> list[KeptNull]:
    """Read the nulls of some metrics that the user's cache keeps; see `null_folder`."""
    starts = tuple({file_start(base_name(metric)) for metric in metrics})
    paths = [path for path in null_folder().glob("*.json") if path.name.startswith(starts)]
    return [replace(one, shared=True) for one in _read(sorted(paths))]


def _read(paths: Iterable[Path]) -> list[KeptNull]:
    nulls = []
    for path in paths:
        try:
            nulls.append(_null(stored_document(read_bytes(path))))
        except (StoreError, ValueError, KeyError, TypeError, AttributeError):
            continue  # `interp score` sets it aside; a card then shows the nulls of the table
    return nulls


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
    Where a folder has no draws, those of the user's cache are added whose mean is the null of the
    table: the key of a kept file names the architecture by a hash that tables do not hold.
    """
    names = [stack["name"] for stack in model["stacks"]]
    heads: dict[str, int] = {}
    for place in model["heads"]:
        site = f"{names[place['stack']]}.{place['layer']}"
        heads[site] = heads.get(site, 0) + 1
    provenance = {metric: about for (_, metric), about in table.provenance.items()}
    for metric in model["metrics"]:
        about = provenance.get(metric["name"])
        fitting = [one for one in kept if about and one.fits(metric["name"], about, heads)]
        n = int((about or {}).get("null_draws") or 0)
        unshared = [one for one in fitting if not one.shared]
        if not unshared:
            fitting = [one for one in fitting if _same_mean(metric, one.draws[:n])]
        chosen = unshared or fitting[:1]  # several with one mean are of equal scores
        if len(chosen) == 1 and n:
            _add(metric, chosen[0].draws[:n])
            if chosen[0].shared and "draws" in metric:
                metric["draws_shared"] = True


def _values(draws: Sequence[Mapping[str, np.ndarray]]) -> np.ndarray:
    values = [x for draw in draws for x in draw.values()]
    every = np.concatenate(values) if values else np.zeros(0)
    return every[np.isfinite(every)]


def _same_mean(metric: Metric, draws: Sequence[Mapping[str, np.ndarray]]) -> bool:
    """Tell whether the mean over draws and heads is the mean of the null in the table."""
    every, nulls = _values(draws), [x for x in metric["null_score"] if x is not None]
    if not len(every) or not nulls:
        return False
    return bool(np.isclose(every.mean(), np.mean(nulls), rtol=1e-6, atol=1e-12))


def _add(metric: Metric, draws: Sequence[Mapping[str, np.ndarray]]) -> None:
    every = np.sort(_values(draws))
    if len(every):
        some = np.linspace(0, len(every) - 1, min(len(every), VALUES)).round().astype(int)
        metric["drawn_values"] = every[some].tolist()
        metric["draws"] = len(draws)
