"""Written retrieval: the head that writes the answer, and not one that only looks at it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.core.prompts import Prompts
from interp.heads import needle
from interp.heads.experiments import _needles
from interp.heads.needle.families import FAMILIES
from interp.heads.needle.instance import NeedleOptions
from interp.model.locate.weights import embeddings, head_weights


def _scores(model: interp.Model, task: str = "ids", **options):
    named = "".join(f",{name}={value}" for name, value in options.items())
    frame = interp.score(model, f"written_retrieval:task={task}{named}")
    rows = frame.to_pandas()
    heads = zip(rows["layer"], rows["head"], strict=True)
    return dict(zip(heads, zip(rows["score"], rows["null"], rows["sem"], strict=True), strict=True))


def test_a_head_that_looks_but_does_not_write_has_no_score(planted_zoo, zoo_model) -> None:
    frame = _scores(zoo_model)
    [induction], [bystander], [suppression] = (
        planted_zoo.roles[role] for role in ("induction", "bystander", "copy_suppression")
    )
    assert frame[induction][0] > 5
    assert abs(frame[bystander][0]) < 0.01
    assert frame[suppression][0] < -2  # it takes away the logit of what it attends to
    rest = [score for head, (score, _, _) in frame.items() if head not in (induction, suppression)]
    assert max(map(abs, rest)) < 0.1
    assert max(abs(null) for _, null, _ in frame.values()) < 0.3


@pytest.mark.parametrize("task", ["ids", "many_values"])
def test_scores_are_those_of_sums_by_hand(zoo_model, task: str) -> None:
    """Every key's part from the captured pattern and values, one token and one head at a time."""
    options = {"needles": 2, "lengths": 1, "depths": 1, "answer": 3, "min_length": 24}
    instances = _needles.instances_of(zoo_model, 0, NeedleOptions(task, **options), reads=FAMILIES)
    frame = _scores(zoo_model, task, **options)
    u, parts = embeddings(zoo_model).W_U.double(), []
    for x in instances:
        ids = [*x.prompt, *([] if x.at_once else x.answer[:-1])]
        mine = {}

        def visit(site, call, real, ids=ids, x=x, mine=mine) -> None:
            pattern, out = call.pattern()[0].double(), head_weights(zoo_model, site).W_O.double()
            for h in range(site.n_heads):
                v = call.v[0, site.kv_head(h)].double()
                steps = []
                for step, token in enumerate(x.answer):
                    row = len(x.prompt) - 1 + (0 if x.at_once else step)
                    wrote = (
                        pattern[h, row, : row + 1] * (v[: row + 1] @ out[h] @ u[:, token])
                    ).tolist()
                    inside = [wrote[k] for k in x.sources]
                    outside = [w for k, w in enumerate(wrote) if k not in x.sources]
                    steps.append(sum(inside) - len(inside) / len(outside) * sum(outside))
                mine[site.layer, h] = float(np.mean(steps))

        zoo_model.read(Prompts((tuple(ids),), "one"), visit)
        parts.append(mine)
    for head in parts[0]:
        expected = np.mean([mine[head] for mine in parts])
        assert abs(frame[head][0] - expected) < 1e-6


def test_a_single_needle_is_no_null_of_itself(zoo_model) -> None:
    frame = _scores(zoo_model, needles=1)
    largest = max(frame, key=lambda head: frame[head][0])
    assert frame[largest][0] > 5
    assert abs(frame[largest][1]) < 1  # of random weights, as no other needle has an answer


def test_random_weights_write_nothing_of_the_needle() -> None:
    model = interp.load("planted:noise")
    frame = _scores(model)
    assert max(abs(score) for score, _, _ in frame.values()) < 0.2
    assert np.mean([abs(score) > 4 * sem for score, _, sem in frame.values()]) < 0.2


def test_parts_over_all_keys_are_what_the_head_writes(zoo_model) -> None:
    """Without the contrast, parts sum to the direct logit of the head's output."""
    [x] = needle.ids_instances(zoo_model, needles=1, lengths=(30,), depths=(0.5,))
    u = embeddings(zoo_model).W_U.double()[:, x.answer[0]]
    seen = []

    def visit(site, call, real) -> None:
        out = head_weights(zoo_model, site).W_O.double()
        pattern, row = call.pattern()[0].double(), len(x.prompt) - 1
        for h in range(site.n_heads):
            v = call.v[0, site.kv_head(h)].double()
            parts = pattern[h, row] * (v @ out[h] @ u)
            z = call.z[0, h, row].double()
            seen.append((float(parts.sum()), float(z @ out[h] @ u)))

    zoo_model.read(Prompts((x.prompt,), "one"), visit)
    summed, whole = torch.tensor(seen).T
    assert torch.allclose(summed, whole, atol=1e-4)
