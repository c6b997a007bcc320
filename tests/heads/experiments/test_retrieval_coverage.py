"""Intervals of copies and of question mass: over needles, and as wide as their values ask for."""

from __future__ import annotations

import numpy as np
import torch

import interp
from interp.heads import needle
from interp.heads.needle.copying import CopyPaste


def _result(model: interp.Model, instances, rng: np.random.Generator) -> CopyPaste:
    """Return scores as those of a head that copies some needles whole and others not at all."""
    values = {}
    each = [x.needle for x in instances]
    for site in model.sites:
        by_needle = np.where(
            rng.random((8, site.n_heads)) < 0.4, rng.beta(8, 1, (8, site.n_heads)), 0
        )
        values[site] = torch.from_numpy(by_needle[each] * rng.choice([0.75, 1.0], (len(each), 1)))
    n = len(instances)
    return CopyPaste(values, torch.ones(n), torch.zeros(n).double(), tuple(instances))


def test_intervals_hold_the_mean_as_often_as_they_say() -> None:
    model = interp.load("bundled:induction")
    instances = needle.ids_instances(model, needles=8)
    rng, truth = np.random.default_rng(0), 0.4 * 8 / 9 * 0.875
    found = [_result(model, instances, rng).to_pandas() for _ in range(40)]
    low, high = (np.concatenate([x[end] for x in found]) for end in ("low", "high"))
    shown = ~np.isnan(low)
    assert shown.mean() > 0.8
    held = ((low <= truth) & (truth <= high))[shown]
    assert held.mean() > 0.95 - 2 * (0.95 * 0.05 / shown.sum()) ** 0.5
    assert low[shown].min() >= 0
    assert high[shown].max() <= 1


def test_instances_of_one_needle_are_no_further_evidence() -> None:
    """Every instance twice leaves errors and intervals as they were."""
    model = interp.load("bundled:induction")
    once = needle.ids_instances(model, needles=6, lengths=(24,))
    results = [needle.copy_paste(model, x) for x in (once, [*once, *once])]
    masses = [needle.question_mass(model, x) for x in (once, [*once, *once])]
    for one, two in (results, masses):
        first, second = one.to_pandas(), two.to_pandas()
        for column in ("sem", "low", "high"):
            np.testing.assert_allclose(first[column], second[column], rtol=1e-6, atol=1e-9)
        narrow, wide = one.interval(0.5), one.interval(0.99)
        shown = narrow["low"].notna().to_numpy()
        assert (wide["low"].to_numpy() <= narrow["low"].to_numpy())[shown].all()
