"""Share of a unit's attention that one detector explains, on prompts that did not choose it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.causal.importance import standard_error
from interp.core.clusters import cluster_count
from interp.core.errors import OptionError
from interp.core.intervals import around
from interp.core.result import Result
from interp.core.statistics import sign_flip_p
from interp.dictionaries.profile import UnitProfile, mean_known

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Monosemanticity(Result):
    """Share of the attention of units that one detector explains, beyond chance, held out.

    For every unit a detector is chosen on one half of the prompts: the one with the highest mean of
    (mass - chance) / (1 - chance), where chance is the mass of uniform attention at the same
    positions. The score is that quantity on the other half, and the same with the halves exchanged:
    0 for uniform attention, 1 if all of the attention is on the targets of one detector.

    Args:
        kinds: kind of every unit, as named by the caller.
        labels: the units.
        chosen: detector chosen on the first and on the second half.
        values: the score on every prompt; NaN where the unit has no position with a target.
        clusters: a label per prompt where prompts share something.
    """

    kinds: tuple[str, ...]
    labels: tuple[str, ...]
    chosen: tuple[tuple[str, str], ...] = field(repr=False)
    values: Float[Array, "unit prompt"] = field(repr=False)
    clusters: tuple[str, ...] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _units = ("kind", "unit_name")
    _per_row = ("kinds", "labels", "chosen", "values")

    @property
    def per_prompt(self) -> Float[Array, "unit prompt"]:  # type: ignore[override]
        """Score on every prompt."""
        return self.values

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": "monosemanticity", "unit": "share of attention beyond chance"}

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        mean, n = mean_known(self.values[:, None])
        sem = [_error(row, self.clusters)[1] for row in self.values]
        return pd.DataFrame(
            {
                "kind": self.kinds, "unit_name": self.labels, "score": mean[:, 0], "sem": sem,
                "detector": [a if a == b else f"{a} / {b}" for a, b in self.chosen],
                "null": 0.0, "n": n[:, 0],
            }
        )  # fmt: skip

    def group(self, kind: str) -> Float[Array, " prompt"]:
        """Return the mean over the units of a kind on every prompt; NaN without a unit.

        Raises:
            OptionError: there are no such units.
        """
        mine = [i for i, k in enumerate(self.kinds) if k == kind]
        if not mine:
            known = ", ".join(dict.fromkeys(self.kinds))
            raise OptionError(f"no units {kind!r}; there are {known}")
        return mean_known(self.values[mine].T[None])[0][0]

    def groups(self) -> pd.DataFrame:
        """Return the mean of each kind with its 95 % interval over prompts."""
        import pandas as pd

        rows = []
        for kind in dict.fromkeys(self.kinds):
            mean, sem, low, high, n = _interval(self.group(kind), self.clusters)
            rows.append({"kind": kind, "units": self.kinds.count(kind), "score": mean, "sem": sem,
                         "low": low, "high": high, "n": n})  # fmt: skip
        return pd.DataFrame(rows)

    def difference(self, first: str, second: str) -> dict[str, float]:
        """Return the mean difference of two kinds, paired over prompts, with interval and p.

        p is of a sign-flip test over prompts, or over their clusters.
        """
        gap = self.group(first) - self.group(second)
        mean, sem, low, high, n = _interval(gap, self.clusters)
        known = ~np.isnan(gap)
        if self.clusters is None:
            apart = gap[known]
        else:
            labels = np.array(self.clusters)
            apart = np.array([
                gap[known & (labels == c)].mean() for c in dict.fromkeys(labels[known])
            ])  # fmt: skip
        return {"score": mean, "sem": sem, "low": low, "high": high, "n": float(n),
                "p": sign_flip_p(apart)}  # fmt: skip

    def __repr__(self) -> str:
        lines = ["Monosemanticity: attention explained by one detector, beyond chance, held out"]
        for x in self.groups().to_dict("records"):
            lines.append(f"  {x['kind']}: {x['score']:.3f} [{x['low']:.3f}, {x['high']:.3f}], "
                         f"{x['units']} units, {x['n']} prompts")  # fmt: skip
        return "\n".join(lines)


def _error(row: Array, clusters: Sequence[str] | None) -> tuple[int, float]:
    known = ~np.isnan(row)
    labels = None if clusters is None else [c for c, k in zip(clusters, known, strict=True) if k]
    n = int(known.sum())
    if n < 2:
        return n, np.nan
    return cluster_count(n, labels), float(standard_error(row[known][None], labels)[0])


def _interval(row: Array, clusters: Sequence[str] | None) -> tuple[float, float, float, float, int]:
    known = row[~np.isnan(row)]
    n, sem = _error(row, clusters)
    mean = float(known.mean()) if len(known) else np.nan
    low, high = around(np.array([mean]), [(np.array([sem]), n - 1.0)])[0]
    return mean, sem, float(low), float(high), len(known)


def monosemanticity(profiles: Mapping[str, UnitProfile], *, seed: int = 0) -> Monosemanticity:
    """Measure for each unit how much of its attention one detector explains, held out.

    Args:
        profiles: by the name of a kind, profiles of units on the same prompts with the same
            detectors, such as {"head": profile_heads(...), "feature": score_features(...)}.
        seed: seed of the halves.

    Raises:
        OptionError: profiles differ in prompts or detectors, or there are fewer than four prompts.
    """
    if not profiles:
        raise OptionError("no profiles; give at least one, by the name of its kind")
    first = next(iter(profiles.values()))
    for name, each in profiles.items():
        same = each.provenance.get("prompts_hash") == first.provenance.get("prompts_hash")
        if not same or each.detectors != first.detectors:
            raise OptionError(f"the profile {name!r} is of other prompts or detectors")
    n = first.mass.shape[2]
    if n < 4:
        raise OptionError(f"{n} prompts are too few for two halves; give at least 4")
    half = np.zeros(n, dtype=bool)
    half[np.random.default_rng(seed).permutation(n)[: n // 2]] = True
    kinds, labels, chosen, values = [], [], [], []
    for kind, profile in profiles.items():
        room = 1 - profile.chance
        excess = np.divide(
            profile.mass - profile.chance, room,
            out=np.full(profile.mass.shape, np.nan), where=room > 1e-9,
        )  # fmt: skip
        # a detector without a position on one half is never chosen there
        on = [np.nan_to_num(mean_known(excess[..., h])[0], nan=-np.inf) for h in (half, ~half)]
        best = [x.argmax(1) for x in on]
        for unit, name in enumerate(profile.labels):
            row = np.where(half, excess[unit, best[1][unit]], excess[unit, best[0][unit]])
            kinds.append(kind)
            labels.append(name)
            values.append(row)
            names = profile.detectors
            chosen.append((names[best[0][unit]], names[best[1][unit]]))
    kept = ("model", "model_id", "content_hash", "prompts", "prompts_hash", "n_prompts", "versions")
    about = {name: first.provenance.get(name) for name in kept}
    about |= {"options": {"detectors": list(first.detectors)}, "seed": seed,
              "made_by": "interp.dictionaries.monosemanticity"}  # fmt: skip
    return Monosemanticity(tuple(kinds), tuple(labels), tuple(chosen), np.stack(values),
                           first.clusters, about)  # fmt: skip
