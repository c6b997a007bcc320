"""RCStat against every pair of logits, an analytic value, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.attribution import Example
from interp.attribution.methods.rcstat import relative
from interp.attribution.target import Target
from interp.core.errors import OptionError
from interp.core.registry import ATTRIBUTION_METHODS

IDS = [[7, 12, 9, 30, 7, 12, 3, 5]]


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_it_is_the_mean_excess_over_all_pairs_of_logits(family: str, loaded) -> None:
    model, count = loaded(family), 3
    example = Example(model, IDS, Target("one", lambda out, real: out[:, 0, 0], 0, "state"))
    n = len(example)
    start, each = n - count, []
    cache = model.capture(IDS, ["q", "k"])
    for site in model.sites:
        q, k = (cache[x, site.layer, site.stack][0].double() for x in ("q", "k"))
        k = k.repeat_interleave(site.n_heads // site.n_kv_heads, 0)
        s = (q @ k.mT) * q.shape[-1] ** -0.5
        for head in s:
            own = [
                float(head[i, j])
                for i in range(start, n)
                for j in range(start, n)
                if j <= i or not site.causal
            ]
            each.append(
                [
                    np.mean([max(float(head[i, p]) - y, 0) for i in range(start, n) for y in own])
                    for p in range(start)
                ]
            )
    found = ATTRIBUTION_METHODS.load("rcstat").of(example, generated=count)
    np.testing.assert_allclose(found.scores[:start], np.mean(each, 0), atol=2e-6)
    assert (found.scores[start:] == 0).all()
    assert found.notes["expected excess"] == pytest.approx(np.mean(each), abs=2e-6)
    best = ATTRIBUTION_METHODS.load("rcstat").of(example, generated=count, heads=1)
    top = int(np.argmax(np.mean(each, 1)))
    np.testing.assert_allclose(best.scores[:start], each[top], atol=2e-6)
    assert best.notes["largest heads"].startswith(f"L{top // model.n_heads}H{top % model.n_heads} ")


def test_of_two_equal_normals_it_is_their_known_expectation() -> None:
    """E max(X - Y, 0) of two independent standard normals is 1/sqrt(pi), and of X + c it grows."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1, 400, 800, generator=draw, dtype=torch.double)
    seen = torch.ones(1, 400, 800, dtype=torch.bool)
    x[:, :, 7] += 5
    x[:, :, 8] -= 50
    found = relative(x, seen, 400)[0]
    others = torch.cat([found[:7], found[9:]])
    assert float(others.mean()) == pytest.approx(np.pi**-0.5, abs=0.01)
    assert float(found[7]) == pytest.approx(5, abs=0.1)
    assert float(found[8]) == 0
    seen[:, :, 7] = False
    assert float(relative(x, seen, 400)[0, 7]) == 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"generated": 8}, "give 1 to 7"),
        ({"generated": -1}, "give 1 to 7"),
        ({"heads": 99}, "heads=99 is out of range"),
    ],
)
def test_numbers_out_of_range_are_refused(options, line, llama_model) -> None:
    with pytest.raises(OptionError, match=line):
        ATTRIBUTION_METHODS.load("rcstat").of(Example(llama_model, IDS), **options)
