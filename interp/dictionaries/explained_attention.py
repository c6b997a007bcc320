"""Share of a unit's attention that one detector explains, on prompts that did not choose it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_count
from interp.core.errors import OptionError
from interp.core.intervals import around
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.statistics import sign_flip_p
from interp.dictionaries.profile import mean_known

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray


def mean_of_kind(found: ResultRows, kind: str) -> Float[Array, " prompt"]:
    """Return the mean over the units of a kind on every prompt; NaN without a unit."""
    kinds = found.columns["kind"]
    mine = [i for i, k in enumerate(kinds) if k == kind]
    if not mine:
        raise OptionError(f"no units {kind!r}; there are {', '.join(dict.fromkeys(kinds))}")
    return mean_known(found.per_prompt[mine].T[None])[0][0]


def means_by_kind(found: ResultRows) -> pd.DataFrame:
    """Return the mean of each kind of `monosemanticity` with its 95 % interval over prompts."""
    import pandas as pd

    rows, kinds = [], found.columns["kind"]
    for kind in dict.fromkeys(kinds):
        mean, sem, low, high, n = _interval(mean_of_kind(found, kind), found.clusters)
        rows.append(
            {
                "kind": kind,
                "units": kinds.count(kind),
                "score": mean,
                "sem": sem,
                "low": low,
                "high": high,
                "n": n,
            }
        )
    return pd.DataFrame(rows)


def difference_of_kinds(found: ResultRows, first: str, second: str) -> dict[str, float]:
    """Return the mean difference of two kinds, paired over prompts, with interval and p.

    p is of a sign-flip test over prompts, or over their clusters.
    """
    gap = mean_of_kind(found, first) - mean_of_kind(found, second)
    mean, sem, low, high, n = _interval(gap, found.clusters)
    known = ~np.isnan(gap)
    if found.clusters is None:
        apart = gap[known]
    else:
        labels = np.array(found.clusters)
        apart = np.array([gap[known & (labels == c)].mean() for c in dict.fromkeys(labels[known])])
    return {
        "score": mean,
        "sem": sem,
        "low": low,
        "high": high,
        "n": float(n),
        "p": sign_flip_p(apart),
    }


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


def monosemanticity(profiles: Mapping[str, ResultRows], *, seed: int = 0) -> ResultRows:
    """Measure for each unit how much of its attention one detector explains, held out.

    Args:
        profiles: by the name of a kind, profiles of units on the same prompts with the same
            detectors, such as {"head": profile_heads(...), "feature": score_features(...)}.
        seed: seed of the halves.

    Returns:
        One row per unit: kind (as named by the caller), unit_name, score, sem, detector (the one
        chosen on the first half of the prompts, and that of the second where it differs), null and
        n. For every unit a detector is chosen on one half: the one with the highest mean of (mass -
        chance) / (1 - chance), where chance is the mass of uniform attention at the same positions.
        The score is that quantity on the other half, and the same with the halves exchanged: 0 for
        uniform attention, 1 if all of the attention is on the targets of one detector.
        `means_by_kind` and `difference_of_kinds` summarise it.

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
    n = first.per_prompt.shape[1]
    if n < 4:
        raise OptionError(f"{n} prompts are too few for two halves; give at least 4")
    half = np.zeros(n, dtype=bool)
    half[np.random.default_rng(seed).permutation(n)[: n // 2]] = True
    kinds, labels, chosen, values = [], [], [], []
    for kind, profile in profiles.items():
        shape = len(profile.labels), len(profile.detectors), n
        mass, chance = (x.reshape(shape) for x in (profile.per_prompt, profile.uniform))
        room = 1 - chance
        excess = np.divide(mass - chance, room, out=np.full(shape, np.nan), where=room > 1e-9)
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
    shared = (
        "model",
        "model_id",
        "content_hash",
        "prompts",
        "prompts_hash",
        "n_prompts",
        "versions",
    )
    about = {name: first.provenance.get(name) for name in shared}
    about |= {
        "options": {"detectors": list(first.detectors)},
        "seed": seed,
        "made_by": "interp.dictionaries.monosemanticity",
    }
    each = np.stack(values)
    mean, known = mean_known(each[:, None])
    columns = {
        "kind": kinds,
        "unit_name": labels,
        "score": mean[:, 0],
        "sem": [_error(row, first.clusters)[1] for row in each],
        "detector": [a if a == b else f"{a} / {b}" for a, b in chosen],
        "null": 0.0,
        "n": known[:, 0],
    }
    facts = {"metric": "monosemanticity", "unit": "share of attention beyond chance"}
    return ResultRows(
        "Monosemanticity",
        columns,
        ("kind", "unit_name"),
        about,
        facts,
        each,
        clusters=first.clusters,
    )


def monosemanticity_summary(found: ResultRows) -> str:
    """Return the mean of each kind of units."""
    lines = ["Monosemanticity: attention explained by one detector, beyond chance, held out"]
    for x in means_by_kind(found).to_dict("records"):
        lines.append(
            f"  {x['kind']}: {x['score']:.3f} [{x['low']:.3f}, {x['high']:.3f}], "
            f"{x['units']} units, {x['n']} prompts"
        )
    return "\n".join(lines)


present("Monosemanticity", summary=monosemanticity_summary)
