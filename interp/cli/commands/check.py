"""Command `interp check`: comparison of the heads read from a model with its own output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.cli.making import command
from interp.cli.run import Run

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.model.self_check import SelfCheck

GROUP = "Models and shell"


def _failed(run: Run) -> int:
    return int(any(not found.passed for _, [found] in run.results))


@command(
    over="models",
    out=None, loading=("source", "device_map", "remote", "tp_plan"), checked=False, after=_failed,
    text="interp.report.printed.check:check_text", example="interp check models/mine",
)  # fmt: skip
def check(run: Run, model: Model) -> SelfCheck:
    """Check that the heads of a model are read correctly, layer by layer.

    Two equalities are tested per attention, on a few random tokens: the pattern times the values
    equals the head outputs in the model, and the heads' results plus the bias equal the attention
    output. Errors are relative to the largest entry. The exit code is 1 if a model fails.
    """
    from interp.model.check import check_model

    run.say(repr(model))
    if run.loading.through is not None:
        run.say(f"  source: {model.source}")
    return check_model(model)
