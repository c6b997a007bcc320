"""Command `interp attribute flow`: attention rollout and attention flow of chosen outputs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from interp.cli.attributions import ENDS, attributions
from interp.cli.inputs import ASKED
from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.attribution.result import Attribution
    from interp.attribution.target import Target
    from interp.model.model import Model


@command(
    loading=("chat",),
    inputs={"texts": ASKED},
    options={
        "file": Spelling(help="File with one text per line, in place of --text."),
        "positions": Spelling(
            read=lambda given: [_position(x) for x in given],
        ),
    },
    out=ENDS,
    example="interp attribute flow gpt2 --text 'The keys are on the' --position mean",
)
def flow(
    run: Run,
    model: Model,
    texts: list[str],
    positions: Any = (),
    *,
    stack: str = "",
) -> Iterator[Attribution]:
    """Compute attention rollout and attention flow from outputs of MODEL to the tokens of a text.

    Both use attention alone: they show possible paths of information, not effects on the output.
    The share of saturated flows is the part of the flow that only reflects the attention of the
    first layer.

    Args:
        positions: output position (negative counts from the end), or mean for the average over all.
            Repeatable; by default the last, and mean for encoders.
        stack: stack to use if a model has several.
    """
    from interp.attribution.declaration import choose_methods
    from interp.attribution.example import Example

    of_stack = f":stack={stack}" if stack else ""
    chosen = choose_methods([f"{name}{of_stack}" for name in ("rollout", "attention_flow")])
    wanted = positions or [None if model.kind == "encoder" else -1]
    examples = [
        (i, one, partial(Example, model, one, _output(at)))
        for i, one in enumerate(texts)
        for at in wanted
    ]
    title = f"{model.name}: rollout and attention flow"
    yield from attributions(run, examples, chosen, title, strict=True)


def _position(text: str) -> int | None:
    if text == "mean":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise OptionError(f"output {text!r} is not a position; give a number, or mean") from error


def _output(position: int | None) -> Target:
    """Return an output as a target: flow reads its row, and its value is the norm of the output."""
    from interp.attribution.target import Target

    def read(output, real):
        if output.dim() == 2:
            return output.double().norm(dim=-1)
        if position is None:
            return (output.double() * real[..., None]).sum(1).norm(dim=-1) / real.sum(1)
        return output[:, position].double().norm(dim=-1)

    where = "all positions" if position is None else f"position {position}"
    return Target(f"length of the output at {where}", read, position, "length")
