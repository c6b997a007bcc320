"""Options of every command that loads models."""

from __future__ import annotations

import glob
import os
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click

from interp.cli.context import DEBUG
from interp.cli.name_types import SourceName
from interp.cli.progress import Voice
from interp.cli.settings import Setting
from interp.cli.value_types import DEVICE, IMPORT
from interp.core.documents import parse_toml
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.text_file import read_text
from interp.model.loading import Loading

_NOT_FROM_FILE = {"config", "help", "debug"}


def config_option() -> click.Option:
    """Return the option `--config`; `models` in the file stands for the first argument."""

    def read(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
        if path is not None:
            models = next(p for p in ctx.command.params if isinstance(p, click.Argument))
            ctx.default_map = defaults(ctx, path, str(models.name))

    return click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=read,
        help="Read options from a TOML file: their long names, 'models' and 'metrics'. "
        "Command-line options override the file.",
    )


def defaults(ctx: click.Context, path: Path, sources: str) -> dict[str, Any]:
    """Return the values in a file, by parameter of the command."""
    try:
        stated = parse_toml(read_text(path))
    except PromptError as error:
        raise OptionError(f"--config: {error}") from error
    except ValueError as error:
        raise OptionError(f"--config {path} is not valid TOML: {error}") from error
    options = _options(ctx.command)
    known = {**options, "models": sources}
    several = {p.name for p in ctx.command.params if getattr(p, "multiple", False)}
    values: dict[str, Any] = {}
    for key, value in stated.items():
        name = known.get(key.replace("_", "-"))
        if name is None:
            raise UnknownName(f"key in {path}", key, sorted(known))
        if name in values:
            raise OptionError(f"{path}: {key!r} repeats another key; give only one of them")
        found_value = _checked(path, key, value)
        one_of_many = name in several and isinstance(found_value, str)
        values[name] = [found_value] if one_of_many else found_value
    if sources in values:
        values[sources] = _expanded(path, values[sources])
    return values


def _options(command: click.Command) -> dict[str, str]:
    """Return the names of options without dashes, with the plurals of repeatable ones.

    An option has its long names here, or its short one if it has no other.
    """
    known: dict[str, str] = {}
    for option in command.params:
        if not isinstance(option, click.Option) or option.name in (None, *_NOT_FROM_FILE):
            continue
        if isinstance(option, Setting):
            known[str(option.name).replace("_", "-")] = str(option.name)
            continue
        for text in [x for x in option.opts if x.startswith("--")] or option.opts:
            known[text.lstrip("-")] = str(option.name)
            if option.multiple:
                known[text.lstrip("-") + "s"] = str(option.name)
    return known


def _checked(path: Path, key: str, value: Any) -> Any:
    plain = isinstance(value, (str, int, float, bool))
    texts = isinstance(value, list) and all(isinstance(v, str) for v in value)
    if not plain and not texts:
        raise OptionError(f"{path}: {key} must be a text, a number, true, false or a list of texts")
    return value


def _expanded(path: Path, models: Any) -> list[str]:
    """Expand models given by name, folder or pattern, as a shell would."""
    if not isinstance(models, list):
        raise OptionError(f"{path}: models must be a list of texts")
    sources = []
    for model in models:
        matches = (
            sorted(glob.glob(str(Path(model).expanduser()))) if set(model) & set("*?[") else []
        )
        if set(model) & set("*?[") and not matches:
            raise OptionError(f"{path}: no file or folder has the name {model}")
        sources += matches or [model]
    return sources


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
    options = {k: values.pop(k) for k in Loading.__dataclass_fields__ if k in values}
    session = click.get_current_context().with_resource(ExitStack())
    return Loading(**options, session=session, note=voice.note)
