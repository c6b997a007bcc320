"""Command `interp check`: heads compared with the model's output, kernels with their definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.cli.making import command
from interp.cli.run import Run

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.model.self_check import SelfCheck

GROUP = "Models and shell"


def _failed(run: Run) -> int:
    def failed(found: SelfCheck) -> bool:
        kernels = [row.passed for test in found.kernels for row in test.compared]
        return not found.passed or not all(kernels)

    return int(any(failed(checked) for _, [checked] in run.results))


def _served(run: Run, address: str) -> bool:
    from interp.text.context.served import check_endpoint

    endpoint = check_endpoint(address)
    run.say(str(endpoint))
    return endpoint.passed


@command(
    over="models",
    out=None,
    loading=("source", "device_map", "remote", "tp_plan"),
    checked=False,
    after=_failed,
    text="interp.report.printed.check:check_text",
    example="interp check models/mine",
)
def check(run: Run, model: Model, *, kernels: bool | None = None) -> SelfCheck:
    """Check that the heads of a model are read correctly, layer by layer.

    Two equalities are tested per attention, on a few random tokens: the pattern times the values
    equals the head outputs in the model, and the heads' results plus the bias equal the attention
    output. Errors are relative to the largest entry. On every device but the CPU, the package's
    kernels are compared with their definition as well. The exit code is 1 if anything fails.
    Of an address of a server (http://HOST/v1, #NAME for one of several models) it is printed what
    can be computed of the model there.

    Args:
        run: the run.
        model: the model.
        kernels: compare the kernels that run on the device with their definition in float64, for
            the widths of the model's heads, and measure their speed. The verdict on a card is kept,
            and only kernels that passed on it are used there by default.
    """
    from interp.model.check import check_model

    run.say(repr(model))
    if run.loading.through is not None:
        run.say(f"  source: {model.source}")
    return check_model(model, kernels=kernels)


check.declared.served = _served
