"""The screen's sizes are compared with what was measured, in the task's own unit."""

from __future__ import annotations

import numpy as np
import pytest

import interp
from interp.circuits.find import find_circuit, score_nodes
from interp.circuits.tasks import make_contrast


@pytest.mark.slow
def test_a_screen_that_says_too_much_of_one_head_hides_no_other() -> None:
    """In the zoo gradients give the previous-token head four times its effect.

    Against that the induction head looks small, and patching it alone does nothing, because its
    backup stands in: so it must be seen by its own size, and with it the backup.
    """
    model = interp.load("planted:zoo")
    task = make_contrast(model, "planted:zoo", n=6)
    (previous,), (induction,) = task.truth["previous_token"], task.truth["induction"]
    screen = score_nodes(model, task, "integrated_patching")
    size = dict(zip(screen.nodes, np.abs(screen.per_prompt.mean(1)), strict=True))
    assert size[induction] < 0.1 * size[previous]
    found = find_circuit(model, task)
    assert found.score[found.nodes.index(previous)] < 0.5 * size[previous]
    assert {row["head"] for row in found.tables["backups"]} >= {
        induction,
        *task.truth["backup"],
    }
    heads = set(found.top(4, heads_only=True).head_names)
    assert heads == {h for named in task.truth.values() for h in named}
