"""Tasks of the models that were trained to hold a known algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.model.content import same_tensors

if TYPE_CHECKING:
    from interp.model.model import Model

DRAWN = 8  # prompts per pair, of which two with different answers are kept


def make(model: Model, n: int, seed: int, name: str) -> ContrastTask:
    """Make a task of a trained model; the nodes of the algorithm's variables are the truth."""
    from interp.planted.trained import trained_model
    from interp.planted.trained.cases import CASES

    base, _, task_name = name.partition(":")
    case = CASES[base]
    task_name = task_name or base
    stated = str(getattr(model.config, "name_or_path", ""))
    if stated != f"trained:{base}" or not same_tensors(model.module, trained_model(base)):
        raise OptionError(
            f"the task trained:{name} is for the model trained:{base}, and not for {model.name},"
            " whose circuit is not known; use that model"
        )
    rng = np.random.default_rng([seed, 46])
    clean, corrupted = case.draw(rng, DRAWN * n), case.draw(rng, DRAWN * n)
    right, wrong = (case.run(ids)[0][task_name] for ids in (clean, corrupted))
    kept = np.flatnonzero(right != wrong)[:n]
    end = case.ends[task_name]
    task = logit_difference(
        model,
        Prompts(tuple(map(tuple, clean[kept].tolist())), f"what trained:{name} does"),
        right[kept].tolist(),
        wrong[kept].tolist(),
        position=end,
        corrupted=Prompts(tuple(map(tuple, corrupted[kept].tolist())), "with another answer"),
        name=f"trained:{name}",
    )
    nodes, edges = case.circuit(task_name)
    heads = {variable: (node,) for variable, node in nodes.items() if node[0] == "L"}
    return ContrastTask(task, ({"end": end},) * len(kept)).known(heads, edges)
