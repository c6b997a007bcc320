"""Options of every command that loads models."""

from __future__ import annotations

import os
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import Any

import click

from interp.cli.config import config_option
from interp.cli.context import DEBUG
from interp.cli.name_types import SourceName
from interp.cli.progress import Voice
from interp.cli.value_types import DEVICE, IMPORT
from interp.model.loading import Loading

DTYPES = ("float32", "bfloat16", "float16", "float64")


def _remember(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    ctx.meta[DEBUG] = value


def _first_process_speaks(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """Silence the other processes of torchrun, which compute the same results."""
    if value is not None and os.environ.get("RANK", "0") != "0":
        silent = ctx.with_resource(open(os.devnull, "w"))  # noqa: SIM115  closed with the context
        ctx.with_resource(redirect_stdout(silent))
        ctx.with_resource(redirect_stderr(silent))
    return value


DEBUG_OPTION = click.Option(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    callback=_remember,
    is_eager=True,  # known before a wrong value of another option raises
    help="Show the traceback of an error.",
)
LOADING = (
    click.Option(["--device"], type=DEVICE, help="Device to run on, such as cpu, cuda or cuda:1."),
    click.Option(
        ["--dtype"],
        type=click.Choice(DTYPES),
        help="Data type of the weights; by default the checkpoint's.",
    ),
    click.Option(
        ["--attention"], metavar="NAME", help="Attention implementation, such as eager or sdpa."
    ),
    click.Option(
        ["--offload"],
        is_flag=True,
        help="Leave the weights in their files and read each layer as it runs, for a model larger "
        "than memory; the numbers are the same.",
    ),
    click.Option(["--revision"], help="Branch, tag or commit of a hub model."),
    click.Option(
        ["--import", "imports"],
        type=IMPORT,
        multiple=True,
        metavar="FILE_OR_MODULE",
        help="Import this module first, such as one that defines a model class. Repeatable.",
    ),
    click.Option(
        ["--trust-remote-code"],
        is_flag=True,
        help="Allow running code that comes with a checkpoint.",
    ),
    click.Option(
        ["--allow-pickle"], is_flag=True, help="Allow pickled weights, which can run any code."
    ),
    DEBUG_OPTION,
)
"""Options of every command that loads models."""
FURTHER = {
    "config": config_option(),
    "source": click.Option(
        ["--source", "through"],
        type=SourceName(),
        help="Load the model through this library; the numbers are the same.",
    ),
    "chat": click.Option(
        ["--chat"],
        is_flag=True,
        help="Read each text as the user's message in the model's chat template.",
    ),
    "device_map": click.Option(
        ["--device-map"],
        metavar="PLAN",
        help="Distribute a large model's layers over this machine's devices, such as auto; needs "
        "accelerate.",
    ),
    "remote": click.Option(
        ["--remote"],
        metavar="ADDRESS",
        help="Run the model on an nnsight server, without loading its weights: the server's "
        "address, or 'configured' for the one in nnsight's settings; 'local' does the same run "
        "here.",
    ),
    "tp_plan": click.Option(
        ["--tp-plan"],
        metavar="PLAN",
        is_eager=True,
        callback=_first_process_speaks,
        help="Spread the heads of a model over the processes of torchrun; auto uses the family's "
        "plan. Example: `torchrun --nproc-per-node 2 -m interp score MODEL --tp-plan auto`",
    ),
}
"""Options of the commands that state them."""


def loading_of(values: dict[str, Any], voice: Voice) -> Loading:
    """Take the values of these options out of those of a command."""
    given = {k: values.pop(k) for k in Loading.__dataclass_fields__ if k in values}
    session = click.get_current_context().with_resource(ExitStack())
    return Loading(**given, session=session, note=voice.note)
