"""Contrastive covariance: planted matching heads, sums by hand, and nothing in random weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.heads.experiments.contrastive_covariance import _held_out, _pairs


def _scored(model: interp.Model, **options):
    bound = METRICS.load("contrastive_covariance").bind(**options)
    trials = bound.experiment(model, 0, lambda *_: None)
    heads = {
        (site.layer, h): (x[:, h].numpy(), trials.null[site][:, h].numpy())
        for site, x in trials.values.items()
        for h in range(site.n_heads)
    }
    return heads, trials


@pytest.mark.parametrize(
    ("feature", "role"), [("token", "duplicate_token"), ("token_before", "induction")]
)
def test_the_planted_head_matches_and_no_other_does(planted_zoo, zoo_model, feature, role) -> None:
    heads, trials = _scored(zoo_model, feature=feature)
    [matching] = planted_zoo.roles[role]
    means = {head: each.mean() for head, (each, _) in heads.items()}
    assert means[matching] > 2
    alike = {matching}
    if feature == "token_before":
        # the bystander and the backup have the queries and keys of induction, and the suppressor
        # attends to what induction predicts: the token of the key
        for also in ("bystander", "backup", "copy_suppression"):
            alike |= set(planted_zoo.roles[also])
    assert max(abs(x) for head, x in means.items() if head not in alike) < 0.5
    null = heads[matching][1]
    assert abs(null.mean()) < 3 * null.std(ddof=1) / len(null) ** 0.5
    assert "with" in trials.notes["directions"]


def test_random_weights_match_nothing() -> None:
    heads, _ = _scored(interp.load("planted:noise"), feature="token")
    errors = [abs(x.mean()) / (x.std(ddof=1) / len(x) ** 0.5) for x, _ in heads.values()]
    assert np.median(errors) < 2
    assert max(errors) < 5


def test_two_prompts_of_a_trial_differ_in_one_token(zoo_model) -> None:
    rng = np.random.default_rng(0)
    for feature, back in (("token", 0), ("token_before", 1)):
        prompts, keys = _pairs(zoo_model, rng, 8, 20, feature)
        for same, other, key, again in zip(
            prompts[::2], prompts[1::2], keys[::2], keys[1::2], strict=True
        ):
            assert key == again < len(same) - 1
            assert same[key - back] == same[-1]
            assert [i for i in range(20) if same[i] != other[i]] == [key - back]
            assert len(set(other)) == 20


def test_all_directions_give_the_whole_difference_of_scores() -> None:
    """With every direction kept, a trial's value is its difference of the model's own scores."""
    model = interp.load("bundled:induction")
    options = {"n": 64, "max_length": 12, "share": 1.0}
    heads, _ = _scored(model, **options)
    prompts, keys = _pairs(model, np.random.default_rng(0), 64, 12, "token")

    def visit(site, call, real) -> None:
        own = call.scores(torch.tensor([11]))[:, :, 0].double()
        each = own[torch.arange(128), :, torch.tensor(keys)]
        for h in range(site.n_heads):
            expected = (each[::2] - each[1::2])[:, h].numpy()
            np.testing.assert_allclose(heads[site.layer, h][0], expected, atol=1e-4)

    model.read(Prompts(tuple(prompts)), visit)


def test_directions_of_one_half_judge_the_other() -> None:
    """Differences of pure noise have no score, though every half has its own best directions."""
    draw = torch.Generator().manual_seed(1)
    q, k = (torch.randn(400, 2, 1, 8, generator=draw, dtype=torch.double) for _ in range(2))
    half = torch.arange(400) % 2 == 0
    found, _ = _held_out(q, k, torch.ones(400), half, 0.5)
    assert abs(float(found.mean())) < 3 * float(found.std()) / 20
    q[0] *= 100  # a trial chooses no directions of its own half, but those of the other
    again, _ = _held_out(q, k, torch.ones(400), half, 0.5)
    torch.testing.assert_close(again[half][1:], found[half][1:], rtol=0, atol=0)
    assert (again[~half] - found[~half]).abs().max() > 0.1


def test_what_cannot_be_is_refused(zoo_model) -> None:
    with pytest.raises(OptionError, match="known: token, token_before"):
        _scored(zoo_model, feature="case")
    with pytest.raises(OptionError, match="at least 4 trials"):
        _scored(zoo_model, n=2)
    with pytest.raises(PromptError, match="use a smaller max_length"):
        _scored(zoo_model, max_length=200)
