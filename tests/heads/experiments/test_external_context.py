"""External context score: planted head on alike states, sums by hand, nothing in random weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError
from interp.core.prompts import bos_id
from interp.heads.experiments import _needles
from interp.heads.needle.instance import NeedleOptions


def _scores(model: interp.Model, **options):
    named = ",".join(f"{name}={value}" for name, value in options.items())
    rows = interp.score(model, f"external_context:task=ids{',' if named else ''}{named}")
    rows = rows.to_pandas()
    heads = zip(rows["layer"], rows["head"], strict=True)
    return dict(zip(heads, zip(rows["score"], rows["null"], rows["sem"], strict=True), strict=True))


def test_the_head_on_earlier_copies_sees_the_states_most_like_its_own(
    planted_zoo, zoo_model
) -> None:
    found = _scores(zoo_model)
    [duplicate] = planted_zoo.roles["duplicate_token"]
    above = {head: score - null for head, (score, null, _) in found.items()}
    assert max(above, key=above.__getitem__) == duplicate
    assert above[duplicate] > 0.2
    noise = [above[head] for head in planted_zoo.roles["noise"]]
    assert max(map(abs, noise)) < 0.1


def test_scores_are_those_of_sums_by_hand() -> None:
    """The attended tokens and the states from the model's own hidden states, one by one."""
    model = interp.load("bundled:induction")  # planted heads give equal weights, so top is open
    options = {"needles": 2, "lengths": 1, "depths": 1, "answer": 3, "max_length": 40, "share": 0.2}
    instances = _needles.instances_of(model, 0, NeedleOptions("ids", 2, 24, 40, 1, 1, 3))
    found = _scores(model, **options)
    first = int(bos_id(model) is not None)
    values: dict[tuple[int, int], list[float]] = {head: [] for head in found}
    for x in instances:
        ids = torch.tensor([[*x.prompt, *x.answer[:-1]]])
        with torch.no_grad():
            out = model.module(input_ids=ids, output_hidden_states=True)
        state = out.hidden_states[-1][0].double()
        patterns = model.capture(ids.tolist(), ["pattern"])
        context = range(first, len(x.context))
        for layer, head in found:
            for row in range(len(x.prompt) - 1, len(x.prompt) + 2):
                weights = patterns["pattern", layer][0, head, row]
                top = sorted(context, key=lambda k: -float(weights[k]))[: int(0.2 * len(context))]
                mean = state[top].mean(0)
                cosine = mean @ state[row] / mean.norm() / state[row].norm()
                values[layer, head].append(float(cosine))
    for head, each in values.items():
        assert abs(found[head][0] - np.mean(each)) < 1e-4, head


def test_random_weights_attend_to_no_states_of_their_own() -> None:
    found = _scores(interp.load("planted:noise"))
    assert max(abs(score - null) for score, null, _ in found.values()) < 0.15


def test_a_share_outside_is_refused(zoo_model) -> None:
    with pytest.raises(OptionError, match="above 0 and up to 1"):
        _scores(zoo_model, share=0)
