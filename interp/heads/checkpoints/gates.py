"""Learned gates over the checkpoints of a training run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from interp.causal.gating.result import LearnedGates
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.heads.between_models.measured import PairableScores
from interp.heads.checkpoints.emergence import curves_of
from interp.heads.checkpoints.result import Emergence
from interp.model.content import versions


def emergence_of_gates(gates: Mapping[int, LearnedGates]) -> Emergence:
    """Return the curve of every head's gate over training steps.

    Values are per restart instead of per prompt: restarts have the same seeds at every checkpoint,
    so they are paired. Intervals and change points therefore state the variation over restarts.
    """
    steps = sorted(gates)
    if len(steps) < 2:
        raise OptionError("curves of gates need at least two checkpoints")
    first = gates[steps[0]]
    scores = []
    for step in steps:
        one = gates[step]
        for key in ("prompts_hash", "method", "penalty", "cost", "seed", "kind", "mlps"):
            if one.provenance.get(key) != first.provenance.get(key):
                raise OptionError(
                    f"the gates of step {step} differ from those of step {steps[0]} in {key}; fit "
                    "all with the same task and settings"
                )
        scores.append({f"gate_{one.method}": _scores(one)})
    hashes = {str(step): gates[step].provenance.get("content_hash") for step in steps}
    about = {
        "model": first.provenance.get("model_id"),
        "checkpoints": hashes,
        "method": first.method,
        "task": first.provenance.get("task"),
        "prompts_hash": first.provenance.get("prompts_hash"),
        "values": "one per restart",
        "versions": versions(),
        "made_by": "interp importance gates",
    }
    return curves_of(steps, scores, about)


def _scores(gates: LearnedGates) -> PairableScores:
    places: dict[tuple[str, int], list[int]] = {}
    for at, heads in enumerate(gates.heads_of):
        if len(heads) != 1:
            raise OptionError(
                "curves over checkpoints follow single heads; fit gates with players='heads' and "
                "mlps='none'"
            )
        head = Head.parse(heads[0])
        places.setdefault((head.stack or "decoder", head.layer), []).append(at)
    sites: dict[tuple[str, int], np.ndarray] = {k: gates.gate[:, at] for k, at in places.items()}
    return PairableScores(sites, None, False, "gate", gates.provenance)
