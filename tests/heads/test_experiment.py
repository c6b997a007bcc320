"""An experiment is declared like every other score: mean over trials, error, null, options."""

from __future__ import annotations

import math

import pytest
import torch

import interp
from interp.core.errors import OptionError
from interp.heads.declaration import experiment
from interp.heads.trials import Trials

MODEL = "planted:bystander"


@experiment(unit="coin", low=0.0, high=1.0, requires=("tokens",))
def coin(model, lab, *, trials: int = 5, own_null: bool = False):
    """Draws a number for every head."""
    generator = torch.Generator().manual_seed(lab.seed)
    values = {}
    for site in model.sites:
        drawn = torch.rand(trials, site.n_heads, generator=generator)
        values[site] = drawn / (4 if "random weights" in model.name else 1)
        values[site][0] = torch.nan
    lab.progress("coin", trials, trials)
    null = {site: torch.full_like(x, 0.25) for site, x in values.items()} if own_null else None
    return Trials(values, null, "fair coin" if own_null else "", {"failed": 1})


@experiment(unit="coin", requires=("tokenizer",))
def read_aloud(model, lab):
    """Needs a tokenizer."""
    raise AssertionError("must not run")


def test_mean_error_and_null_over_the_trials_that_count(planted_bystander):
    told = []
    table = interp.score(planted_bystander, coin, seed=3, progress=lambda *x: told.append(x))
    frame = table.to_pandas()
    want = (
        coin.bind()
        .experiment(planted_bystander, 3, lambda *x: None)
        .values[planted_bystander.sites[0]][1:]
        .double()
    )
    assert frame["score"].iloc[0] == pytest.approx(float(want[:, 0].mean()), abs=1e-12)
    error = float(want[:, 0].std()) / math.sqrt(4)
    assert frame["sem"].iloc[0] == pytest.approx(error, abs=1e-12)
    assert (frame["n"] == 4).all()
    assert frame["null"].to_numpy() == pytest.approx(frame["score"].to_numpy() / 4, abs=1e-7)
    [made] = table.provenance.values()
    assert made["null"] == "random-init"
    assert made["notes"] == ["failed: 1"]
    assert ("coin", 5, 5) in told


def test_its_own_null_comes_first_unless_another_is_asked_for(planted_bystander):
    table = interp.score(planted_bystander, coin.bind(own_null=True))
    [made] = table.provenance.values()
    assert made["null"] == "fair coin"
    assert set(table.to_pandas()["null"]) == {0.25}
    other = interp.score(planted_bystander, coin.bind(own_null=True), null="random-init")
    assert other.provenance[planted_bystander.name, "coin:own_null=True"]["null"] == "random-init"
    assert interp.score(planted_bystander, coin, null="none").to_pandas()["null"].isna().all()
    with pytest.raises(OptionError, match="makes its own prompts"):
        interp.score(planted_bystander, coin, null="shuffled-tokens")


def test_what_a_model_lacks_is_said(planted_bystander):
    with pytest.raises(OptionError, match="read_aloud: planted:bystander has no tokenizer"):
        interp.score(planted_bystander, read_aloud)
    assert len(interp.score(planted_bystander, coin.bind(trials=2))) == len(
        planted_bystander.heads()
    )
