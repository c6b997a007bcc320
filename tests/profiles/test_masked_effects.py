"""Effects of the heads of models that predict masked tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from profiles.effects_by_hand import FEW, given_to, plain, projection, windows_of

import interp
from interp.profiles import Profile
from interp.profiles.predictions import MASKED, Prediction, prediction_of
from interp.report.printed.profile import head_text, profile_text

MASK = 63


@pytest.fixture(scope="module")
def masked_model(loaded: Any) -> Iterator[interp.Model]:
    model = loaded("bert")
    model.config.mask_token_id = MASK
    yield model
    del model.config.mask_token_id


@pytest.fixture(scope="module")
def masked_rows(masked_model: interp.Model) -> list:
    return [tuple(x % 60 + 1 for x in row) for row in plain(masked_model, 12, 20)]


@pytest.fixture(scope="module")
def masked_profile(masked_model: interp.Model, masked_rows: list) -> Profile:
    return interp.profile(masked_model, masked_rows, rules=FEW, n_queries=6, heads=["L1H2"])


def _prediction(model: interp.Model) -> Prediction:
    found = prediction_of(model, model.sites, 0)
    assert isinstance(found, Prediction)
    return found


def test_a_fixed_share_of_tokens_is_masked(masked_model: interp.Model, masked_rows: list) -> None:
    for window in windows_of(masked_rows, masked_model, n_queries=None):
        one, again = (_prediction(masked_model).of(window) for _ in range(2))
        ids = np.asarray(one.window.ids)
        assert one.window.ids == again.window.ids
        assert (ids == MASK).sum() == len(one.tokens) == max(1, round(MASKED * len(ids)))
        assert (np.asarray(window.ids)[ids == MASK] == one.tokens).all()
        other = Prediction(MASK, (), seed=1).of(window)
        assert len(other.tokens) == len(one.tokens)


def test_the_loss_is_that_of_the_masked_tokens(
    masked_profile: Profile, masked_model: interp.Model, masked_rows: list
) -> None:
    """By hand: masks in the ids, the module run, cross entropy there, with and without the head."""
    about = masked_profile.provenance["effects"]
    assert about["predicted"] == "masked token"
    site = masked_model.sites[1]
    d_v = site.d_v
    at = slice(2 * d_v, 3 * d_v)
    windows = [
        _prediction(masked_model).of(w)
        for w in windows_of(masked_rows, masked_model, n_queries=None)
    ]
    module, linear = masked_model.module, projection(masked_model, 1)
    seen: list[torch.Tensor] = []

    def losses(change: Any) -> list[float]:
        found = []
        with given_to(linear, change), torch.no_grad():
            for one in windows:
                logits = module(torch.tensor([one.window.ids])).logits[0, one.places]
                truth = torch.as_tensor(one.tokens)
                found.append(
                    float(torch.nn.functional.cross_entropy(logits, truth, reduction="sum"))
                )
        return found

    clean = losses(lambda x: (seen.append(x[0].clone()), x)[1])
    tokens = sum(len(one.tokens) for one in windows)
    assert about["predicted_tokens"] == tokens
    assert about["loss"] == pytest.approx(sum(clean) / tokens, abs=1e-5)
    mean = torch.cat(seen).mean(0)

    def ablated(x: torch.Tensor) -> torch.Tensor:
        changed = x.clone()
        changed[..., at] = mean[at]
        return changed

    change = (sum(losses(ablated)) - sum(clean)) / tokens
    found = masked_profile.description("L1H2")["effect"]
    assert found["loss"]["value"] == pytest.approx(change, abs=1e-5)


def test_what_is_said_is_of_masked_tokens(masked_profile: Profile) -> None:
    about = masked_profile.description("L1H2")
    assert "nats per masked token" in about["sentence"]
    assert "nats per masked token" in head_text(masked_profile, "L1H2")
    assert "nats per masked token (standard error over" in profile_text([masked_profile])
    assert set(about["effect"]["causal"]) == {"position", "rules", "tokens", "swapped_document"}
