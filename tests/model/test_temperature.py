"""A temperature of heads is a factor of their scores, and reaches no other head."""

from __future__ import annotations

import pytest
import torch

from interp.core.errors import OptionError
from interp.model.pattern_edits import temperature

IDS = [[5, 9, 12, 7, 6, 10, 8], [8, 6, 5, 11, 13, 7, 9]]


@torch.no_grad()
@pytest.mark.parametrize("value", [0.5, 2.0])
def test_scaled_scores_give_the_edited_pattern(loaded, value) -> None:
    model = loaded("llama", "sdpa")
    cache = model.capture(IDS, ["q", "k", "v", "z"], layers=0)
    q, k, v = (cache[name, 0].double() for name in ("q", "k", "v"))
    site = model.sites[0]
    k, v = (x.repeat_interleave(site.n_heads // site.n_kv_heads, 1) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5 / value
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
    wanted = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    with model.edited(temperature([(0, 1)], value)):
        changed = model.capture(IDS, ["z"], layers=0)["z", 0].double()
    torch.testing.assert_close(changed[:, 1], wanted[:, 1], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(changed[:, 0], cache["z", 0].double()[:, 0])
    assert float((wanted[:, 1] - cache["z", 0].double()[:, 1]).abs().max()) > 1e-4


@torch.no_grad()
def test_a_temperature_of_one_changes_nothing_and_others_are_refused(loaded) -> None:
    model = loaded("llama", "sdpa")
    plain = model.run(IDS)
    torch.testing.assert_close(model.run(IDS, edits=[temperature([(0, 1)], 1.0)]), plain)
    for value in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(OptionError, match="positive number"):
            temperature([(0, 1)], value)
