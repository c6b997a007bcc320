"""Command `interp attribute flow`: attention rollout and attention flow of chosen outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.coloured import (
    file_options,
    standing_warning,
    write_attributions,
)
from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument, text_option
from interp.cli.texts import asked_texts, require_tokens
from interp.cli.value_types import PromptFile
from interp.core.errors import OptionError
from interp.report.printed.attribution import print_attribution

if TYPE_CHECKING:
    from interp.attribution.target import Target


@click.command(
    epilog="Example: interp attribute flow gpt2 --text 'The keys are on the' --output mean"
)
@model_argument
@text_option
@click.option(
    "--file",
    type=PromptFile(),
    metavar="FILE",
    help="File with one text per line, in place of --text.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="POSITION",
    help="Output position (negative counts from the end), or mean for the average over all. "
    "Repeatable; by default the last, and mean for encoders.",
)
@click.option(
    "--residual",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Share of the residual connection in every layer.",
)
@click.option(
    "--start-layer",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="First layer of the flow; the layers before it are left out.",
)
@click.option(
    "--backend",
    default="numba",
    show_default=True,
    type=click.Choice(["numba", "scipy", "ortools", "networkx"]),
    help="Solver for the maximum flows.",
)
@click.option("--stack", default="", help="Stack to use if a model has several.")
@file_options
@loading_options
def flow(
    text: str | None,
    source: str,
    file: Path | None,
    outputs: tuple[str, ...],
    residual: float,
    start_layer: int,
    backend: str,
    stack: str,
    out: dict[str, Path],
    top: int,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Compute attention rollout and attention flow from outputs of MODEL to the tokens of a text.

    Both use attention alone: they show possible paths of information, not effects on the output.
    The share of saturated flows is the part of the flow that only reflects the attention of the
    first layer.
    """
    wanted = [_position(o) for o in outputs]  # refused before torch is imported
    texts = asked_texts(text, file)

    from interp.attribution.example import Example
    from interp.attribution.named import choose_methods

    shared = f"residual={residual},start_layer={start_layer}" + (f",stack={stack}" if stack else "")
    chosen = choose_methods([f"rollout:{shared}", f"attention_flow:{shared},backend={backend}"])
    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    found = []
    for at, one in enumerate(texts):
        for position in wanted or [None if model.kind == "encoder" else -1]:
            example = Example(model, one, _output(position))
            require_tokens(example.special, one)
            for method in chosen:
                result = method.of(example)
                result = replace(result, provenance=dict(result.provenance) | {"text": at})
                found.append(result)
                print_attribution(result, top)
    warning = standing_warning(chosen)
    if warning:
        voice.note(warning)
    title = f"{model.name}: rollout and attention flow"
    write_attributions(found, out, title=title, warning=warning)


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
