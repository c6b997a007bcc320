"""Ways to find retrieval heads, side by side per key-value head, with agreement and stability."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.cache.patterns import read_pattern
from interp.cache.windows import KVHead, kv_heads
from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError, UnknownName
from interp.core.presenter import present
from interp.core.protocols import silent
from interp.core.rank_statistics import spearman, top_k
from interp.core.registry import METRICS
from interp.core.result import Result
from interp.core.statistics import percentile_interval, redraw_counts
from interp.draw.parts import FoundPart, result_part
from interp.heads.experiments._needles import chosen_task, instances_of
from interp.heads.needle.instance import NeedleOptions, prompts_of
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp.model.random_weights import random_init

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from interp.heads.trials import Trials
    from interp.model.model import Model

METHODS: Mapping[str, str] = {
    "trained_gates": "DuoAttention's trained gates",
    "retrieval_gates": "gates in one pass",
    "retrieval": "copies the needle (Wu et al.)",
    "qr_retrieval": "attends from question to needle (QR)",
    "razor_induction": "induction on repeats (Razor)",
    "echo": "echo on repeats (Razor)",
    "evaluator_mass": "last rows on the needle (EHPC)",
    "cache_loss": "measured loss of a cut cache",
}
"""Metrics of the table, with a short description."""
ON_NEEDLES = ("retrieval", "qr_retrieval", "evaluator_mass")
PUBLISHED = "published"
Table = Float[np.ndarray, "kv_head trial"]


@dataclass(frozen=True, eq=False, repr=False)
class RetrievalMethods(Result):
    """Scores of every key-value head by every method.

    A score of query heads is reduced to the largest of the group, as RazorAttention does, since
    the group shares one cache.

    Args:
        kv: the key-value heads.
        values: per method its value in every trial, `[kv_head, trial]`.
        clusters: per method what each trial shares with others: needle, period, training.
        lengths: per method the tokens of each trial's prompt; empty where trials have one length.
        nulls: per method the mean score on random weights per key-value head.
    """

    kv: tuple[KVHead, ...]
    values: Mapping[str, Table]
    clusters: Mapping[str, tuple[str, ...]]
    lengths: Mapping[str, tuple[int, ...]]
    nulls: Mapping[str, tuple[float, ...]]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "every method makes its own prompts"
    _units = ("stack", "layer", "kv_head", "metric")
    _holds = (KVHead,)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order of the columns."""
        return tuple(self.values)

    def scores(self) -> pd.DataFrame:
        """Return the mean scores: one row per key-value head, one column per method."""
        import pandas as pd

        columns = {name: x.mean(1) for name, x in self.values.items()}
        return pd.DataFrame(columns, index=pd.Index([str(h) for h in self.kv], name="head"))

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        rows = []
        for name, x in self.values.items():
            summary = cluster_summary(x.T, self.clusters[name])
            for at, head in enumerate(self.kv):
                rows.append(
                    head._asdict()
                    | {
                        "metric": name,
                        "score": float(summary.score[at]),
                        "sem": float(summary.sem[at]),
                        "n": summary.n,
                        "clusters": summary.clusters,
                        "null": (self.nulls.get(name) or [np.nan] * len(self.kv))[at],
                        "unit": "gate" if name == PUBLISHED else METRICS[name].unit,
                    }
                )
        return pd.DataFrame(rows)

    def agreement(self, n_boot: int = 500, seed: int = 0) -> pd.DataFrame:
        """Return Spearman's rank correlation over key-value heads of every pair of methods.

        Each with a 95 % percentile interval by resampling the clusters of trials of both methods,
        widened where it leaves out the estimate, and `chance`, the size that the correlation of
        unrelated rankings exceeds in 5 % of cases (normal approximation). NaN where a method gives
        all heads one score.

        Raises:
            OptionError: there are fewer than three key-value heads, or `n_boot` is below 1.
        """
        import pandas as pd

        self._enough(n_boot)
        rng = np.random.default_rng(seed)
        drawn = {name: self._redrawn(name, n_boot, rng) for name in self.values}
        chance = min(1.0, 1.96 / (len(self.kv) - 1) ** 0.5)
        rows = []
        for at, one in enumerate(self.methods):
            for other in self.methods[at + 1 :]:
                middle = _rho(self.values[one].mean(1), self.values[other].mean(1))
                each = [_rho(a, b) for a, b in zip(drawn[one], drawn[other], strict=True)]
                low, high = _ends(each, middle)
                rows.append(
                    {
                        "method": one,
                        "other": other,
                        "spearman": middle,
                        "low": low,
                        "high": high,
                        "chance": chance,
                        "n": len(self.kv),
                    }
                )
        return pd.DataFrame(rows)

    def stability(self, draws: int = 500, top: float = 0.25, seed: int = 0) -> pd.DataFrame:
        """Return how stable each method's ranking is over needles and over lengths.

        `needles`: rank correlation of the scores from two random halves of the clusters (needles,
        periods, trainings, prompts), the mean over draws with their 2.5 % and 97.5 % quantiles, and
        the overlap of the `top` share of heads. `lengths`: the same between the shortest and the
        longest prompts of a method that has several, with a bootstrap over clusters.

        Raises:
            OptionError: there are fewer than three key-value heads, or an argument is out of range.
        """
        import pandas as pd

        self._enough(draws)
        if not 0 < top <= 1:
            raise OptionError(f"top={top}: give a share of the heads, above 0 and at most 1")
        rng, k, rows = np.random.default_rng(seed), max(1, round(top * len(self.kv))), []
        for name, x in self.values.items():
            labels = np.array(self.clusters[name])
            units = np.unique(labels)
            if len(units) > 1:
                halves = [_split(x, labels, units, rng) for _ in range(draws)]
                rho = np.array([_rho(*h) for h in halves])
                both = np.array([_shared(*h, k) for h in halves])
                rows.append(_row(name, "needles", len(units), float(rho.mean()), rho, both))
            sizes = np.array(self.lengths.get(name, ()))
            if len(np.unique(sizes)) > 1:
                ends = [x[:, sizes == e] for e in (sizes.min(), sizes.max())]
                their = [labels[sizes == e] for e in (sizes.min(), sizes.max())]
                means = [_means(a, b, draws, rng) for a, b in zip(ends, their, strict=True)]
                rho = np.array([_rho(a, b) for a, b in zip(*means, strict=True)])
                both = np.array([_shared(a, b, k) for a, b in zip(*means, strict=True)])
                middle = _rho(ends[0].mean(1), ends[1].mean(1))
                rows.append(_row(name, "lengths", len(units), middle, rho, both))
        return pd.DataFrame(rows)

    def _enough(self, draws: int) -> None:
        if len(self.kv) < 3 or draws < 1:
            raise OptionError(
                f"{len(self.kv)} key-value heads, draws={draws}: a rank correlation needs at least "
                "three heads and one draw"
            )

    def _redrawn(self, name: str, draws: int, rng: np.random.Generator) -> np.ndarray:
        return _means(self.values[name], np.array(self.clusters[name]), draws, rng)

    def __repr__(self) -> str:
        return f"RetrievalMethods of {len(self.kv)} key-value heads: {', '.join(self.methods)}"


def _row(
    name: str, part: str, n: int, middle: float, rho: np.ndarray, both: np.ndarray
) -> dict[str, Any]:
    low, high = _ends(rho, middle)
    top_low, top_high = percentile_interval(both)
    return {
        "method": name,
        "over": part,
        "clusters": n,
        "spearman": middle,
        "low": low,
        "high": high,
        "overlap": float(both.mean()),
        "overlap_low": float(top_low),
        "overlap_high": float(top_high),
    }


def _rho(one: np.ndarray, other: np.ndarray) -> float:
    """Return the rank correlation; NaN if one ranking is constant."""
    return float(spearman(np.stack([one, other]))[0, 1])


def _ends(drawn: Any, middle: float) -> tuple[float, float]:
    each = np.array(drawn)
    each = each[np.isfinite(each)]
    if not len(each) or not np.isfinite(middle):
        return np.nan, np.nan
    low, high = percentile_interval(each)
    return min(float(low), middle), max(float(high), middle)


def _means(x: Table, labels: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Return means over clusters drawn with replacement, `[draw, kv_head]`."""
    units, which = np.unique(labels, return_inverse=True)
    weights = redraw_counts(len(units), draws, rng)[:, which].astype(float)
    return weights @ x.T / weights.sum(1, keepdims=True)


def _split(
    x: Table, labels: np.ndarray, units: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    first = rng.permutation(units)[: len(units) // 2]
    inside = np.isin(labels, first)
    return x[:, inside].mean(1), x[:, ~inside].mean(1)


def _shared(one: np.ndarray, other: np.ndarray, k: int) -> float:
    return len(top_k(one, k) & top_k(other, k)) / k


@takes_model
def retrieval_methods(
    model: Model,
    methods: Sequence[str] | None = None,
    *,
    task: str = "auto",
    needles: int = 8,
    min_length: int = 32,
    max_length: int = 48,
    lengths: int = 2,
    depths: int = 3,
    answer: int = 4,
    n_trainings: int = 3,
    steps: int = 60,
    published: str | PathLike | None = None,
    null: str = "random-init",
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> RetrievalMethods:
    """Score every key-value head by the published ways to find retrieval heads.

    Args:
        model: the model.
        methods: names in `METHODS`; all by default.
        task: as in the metric `retrieval`: `auto` (the one that the model answers best, else
            `ids`), `ids`, `completion`, `question` or a file of needles.
        needles: number of different needles; all methods with needles get the same ones.
        min_length: tokens of the shortest prompt.
        max_length: tokens of the longest prompt.
        lengths: number of lengths from one to the other.
        depths: number of needle positions, from first to last.
        answer: tokens of an answer, in the task `ids`.
        n_trainings: independent trainings of the gates, each on its own needles.
        steps: updates of a training.
        published: a folder or file of gates in DuoAttention's layout, as a further column.
        null: "random-init" scores random weights of the same architecture too; or "none".
        seed: seed of everything random.
        progress: callback with the name of the step, the steps done and their total.

    Raises:
        UnknownName: a method or null is not known.
        OptionError: the model keeps no cache, or an option is out of range.
        PromptError: the needles do not fit the model.

    Unit: the unit of each method; compare ranks, not values.

    Cost: That of the metrics; the trained gates take most of it. Twice with a null.

    Null: the same scores on random weights.

    Not for: a threshold that holds for all methods, or for all models.

    Reference: the papers of the metrics; agreement and stability: this project.
    """
    names = tuple(methods or METHODS)
    for name in names:
        if name not in METHODS:
            raise UnknownName("method for retrieval heads", name, METHODS)
    if null not in ("random-init", "none"):
        raise UnknownName("null", null, ("random-init", "none"))
    heads, progress = kv_heads(model), progress or silent
    if task == "auto":
        task = chosen_task(model, seed, max_length, answer)[0] or "ids"
    needle = NeedleOptions(task, needles, min_length, max_length, lengths, depths, answer)
    instances, common = instances_of(model, seed, needle), asdict(needle)
    options = dict.fromkeys(ON_NEEDLES, common) | {
        "trained_gates": common | {"trials": n_trainings, "steps": steps}
    }

    def run(of: Model) -> dict[str, Trials]:
        bound = {name: METRICS.load(name).bind(**options.get(name, {})) for name in names}
        return {name: b.experiment(of, seed, progress, notes=False) for name, b in bound.items()}

    trials = run(model)
    values = {name: _per_kv(model, heads, scores) for name, scores in trials.items()}
    nulls = {}
    if null == "random-init":
        other = random_init(model, seed)
        nulls = {
            name: tuple(_per_kv(other, heads, scores).mean(1).tolist())
            for name, scores in run(other).items()
        }
    clusters = {
        name: tuple(scores.clusters or map(str, range(values[name].shape[1])))
        for name, scores in trials.items()
    }
    if published is not None:
        pattern = read_pattern(published, model)
        values[PUBLISHED] = pattern.score[:, None]
        clusters[PUBLISHED] = ("file",)
    provenance = result_provenance(
        model,
        "interp.cache.retrieval_methods",
        prompts_of(instances),
        seed=seed,
        **common,
        trainings=n_trainings,
        steps=steps,
        null=null,
        published=None if published is None else str(published),
    )
    sizes_of = {name: tuple(x.length for x in instances) for name in names if name in ON_NEEDLES}
    return RetrievalMethods(heads, values, clusters, sizes_of, nulls, provenance)


def _per_kv(model: Model, heads: Sequence[KVHead], found: Trials) -> Table:
    """Return the largest score of each group of query heads, `[kv_head, trial]`."""
    rows = []
    for head in heads:
        site = model.site(head.layer, head.stack)
        groups = found.values[site].double().unflatten(1, (site.n_kv_heads, -1)).amax(-1)
        rows.append(groups[:, head.kv_head].cpu().numpy())
    return np.stack(rows)


def retrieval_part(found: RetrievalMethods) -> FoundPart:
    """Return the scores of each key-value head by the published ways to find retrieval heads."""
    frame: Any = found.to_pandas()
    notes: dict[tuple[str, int, int], str] = {}
    for key, rows in frame.groupby(["stack", "layer", "kv_head"], sort=False):
        lines = [
            f"{row['metric']} {row['score']:.3g}"
            + (f" (null {row['null']:.2g})" if row["null"] == row["null"] else "")
            for row in rows.head(4).to_dict("records")
        ]
        notes[str(key[0]), int(key[1]), int(key[2])] = f"Retrieval methods: {', '.join(lines)}"
    agreed: Any = found.agreement()
    text = f"{len(found.methods)} ways to find retrieval heads among {len(found.kv)} caches."
    numbers = [c for c in agreed.columns if agreed[c].dtype.kind == "f"]
    if len(agreed) and numbers:
        low, high = agreed[numbers[0]].min(), agreed[numbers[0]].max()
        text += f" Rank correlations between them: {low:.2f} to {high:.2f}."
    return result_part(found, "cache", "Retrieval heads by published methods", text, by_kv=notes)


present(RetrievalMethods, part=retrieval_part)
