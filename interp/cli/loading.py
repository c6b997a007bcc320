"""Options of every command that loads models, and the interpretation of its arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.name_types import SourceName
from interp.cli.value_types import DEVICE, IMPORT
from interp.core.errors import LoadError, OptionError
from interp.core.user_file import own_code
from interp.model.sources.registered import PLAIN

if TYPE_CHECKING:
    from interp.model.model import Model

DTYPES = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True)
class Loading:
    """Options for loading models."""

    device: str | None
    dtype: str | None
    attention: str | None
    revision: str | None
    trust_remote_code: bool
    allow_pickle: bool
    through: str | None = None  # the library that loads the model, or the default one
    device_map: str | None = None
    remote: str | None = None  # the nnsight server that runs the model, or "local"
    tp_plan: str | None = None  # spreads heads over the processes of torchrun

    @property
    def on_cpu(self) -> bool:
        """True if the model runs in this process on the CPU."""
        return self.device in (None, "cpu") and self.device_map is None and self.remote is None

    def load(self, source: str, name: str) -> Model:
        """Return the model, not yet checked; raises InterpError."""
        from interp.model.content import hold
        from interp.model.load import load
        from interp.model.sources.packages import adapter, wrapped

        if self.remote is not None:
            return self._elsewhere(source, name)
        through = self.through or PLAIN
        if through != PLAIN:
            adapter(through)  # checked before any weights are read
        options = {k: v for k, v in vars(self).items() if k not in ("through", "remote")}
        model = load(source, name=name, check=False, **options)
        if model.unused:
            from interp.model.surplus import described

            click.echo(f"{model.name}: {described(model.unused)}", err=True)
        if through != PLAIN:
            held, loaded = wrapped(through, model.module, model.tokenizer), model
            model = load(held, tokenizer=loaded.tokenizer, name=name, check=False)
            model.revision, model.unused = loaded.revision, loaded.unused
        context = click.get_current_context(silent=True)
        if context is not None and model.elsewhere is None:
            context.call_on_close(hold(model.module))
        return model

    def _elsewhere(self, source: str, name: str) -> Model:
        """Return a model that an nnsight server runs, or with "local" the same run here."""
        from interp.model.load import load
        from interp.model.sources.packages import adapter, wrapped

        given = {"--source": self.through, "--device": self.device, "--dtype": self.dtype,
                 "--attention": self.attention, "--device-map": self.device_map,
                 "--tp-plan": self.tp_plan}  # fmt: skip
        wrong = [option for option, value in given.items() if value is not None]
        if wrong:
            raise OptionError(
                f"{', '.join(wrong)} cannot be combined with --remote: the server decides how the "
                "model runs"
            )
        here = adapter("nnsight")  # checked before any weights are read
        if self.remote == "local":
            plain = load(source, name=name, check=False, revision=self.revision,
                         trust_remote_code=self.trust_remote_code,
                         allow_pickle=self.allow_pickle)  # fmt: skip
            held, tokenizer = wrapped("nnsight", plain.module, plain.tokenizer), plain.tokenizer
        else:
            held, tokenizer = here.by_name(source, self.revision), None
        where = self.remote if self.remote and self.remote != "configured" else True
        return load(held, remote=where, tokenizer=tokenizer, name=name, check=False)

    def require_storable(self, out: Path | None) -> None:
        """Raise OptionError if results of such a model cannot be kept in a folder."""
        if out is None or (self.remote is None and self.tp_plan is None):
            return
        why = (
            f"the weights at {self.remote} cannot be compared with those of a later run"
            if self.remote is not None
            else "every process of torchrun would look for them and write them"
        )
        raise OptionError(
            f"results cannot be stored: {why}; leave out -o and redirect --csv or --json to a file"
        )

    def checked(self, source: str, name: str, progress: Callable[[str, int, int], None]) -> Model:
        """Return the model, loaded with a progress bar and checked; raises InterpError."""
        progress("loading", 0, 1)
        model = self.load(source, name)
        progress("loading", 1, 1)
        from interp.model.check import check_model

        check_model(model).require()
        return model

    def require_device(self) -> None:
        """Raise OptionError if torch does not know the device or this machine does not have it."""
        if self.device is None:
            return
        import torch

        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            have = "cuda" if torch.cuda.is_available() else "cpu"
            why = str(error).strip().partition("\n")[0]
            raise OptionError(
                f"device {self.device!r} cannot be used ({why}); this machine has {have}"
            ) from error


def loading_options(function: Callable) -> Callable:
    """Add the options; the command receives `loading: Loading` and `imports`."""

    @wraps(function)
    def command(**options: Any) -> Any:
        given = [name for name in Loading.__dataclass_fields__ if name in options]
        loading = Loading(**{name: options.pop(name) for name in given})
        return function(loading=loading, **options)

    for option in reversed(
        (
            click.option(
                "--device", type=DEVICE, help="Device to run on, such as cpu, cuda or cuda:1."
            ),
            click.option(
                "--dtype",
                type=click.Choice(DTYPES),
                help="Data type of the weights; by default the checkpoint's.",
            ),
            click.option(
                "--attention",
                metavar="NAME",
                help="Attention implementation, such as eager or sdpa.",
            ),
            click.option("--revision", help="Branch, tag or commit of a hub model."),
            click.option(
                "--import",
                "imports",
                type=IMPORT,
                multiple=True,
                metavar="FILE_OR_MODULE",
                help="Import this module first, such as one that defines a model class. "
                "Repeatable.",
            ),
            click.option(
                "--trust-remote-code",
                is_flag=True,
                help="Allow running code that comes with a checkpoint.",
            ),
            click.option(
                "--allow-pickle",
                is_flag=True,
                help="Allow pickled weights, which can run any code.",
            ),
            debug_option,
        )
    ):
        command = option(command)
    return command


source_option = click.option(
    "--source",
    "through",
    type=SourceName(),
    help="Load the model through this library; the numbers are the same.",
)
device_map_option = click.option(
    "--device-map",
    metavar="PLAN",
    help="Distribute a large model's layers over this machine's devices, such as auto; needs "
    "accelerate.",
)


remote_option = click.option(
    "--remote",
    metavar="ADDRESS",
    help="Run the model on an nnsight server, without loading its weights: the server's address, "
    "or 'configured' for the one in nnsight's settings; 'local' does the same run here.",
)


def _first_process_speaks(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """Silence the other processes of torchrun, which compute the same results."""
    if value is not None and os.environ.get("RANK", "0") != "0":
        silent = ctx.with_resource(open(os.devnull, "w"))  # noqa: SIM115  closed with the context
        ctx.with_resource(redirect_stdout(silent))
        ctx.with_resource(redirect_stderr(silent))
    return value


tp_plan_option = click.option(
    "--tp-plan",
    metavar="PLAN",
    is_eager=True,
    callback=_first_process_speaks,
    help="Spread the heads of a model over the processes of torchrun; auto uses the family's plan. "
    "Example: torchrun --nproc-per-node 2 -m interp score MODEL --tp-plan auto",
)


def _remember(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    ctx.meta["interp.debug"] = value


debug_option = click.option(
    "--debug",
    is_flag=True,
    is_eager=True,  # known before a wrong value of another option raises
    expose_value=False,
    callback=_remember,
    help="Show the traceback of an error.",
)


def source_labels(sources: Sequence[str], names: Sequence[str] = ()) -> dict[str, str]:
    """Return the label of each source: a folder's name, or its path if names repeat.

    Args:
        sources: folders, hub ids and other names of models.
        names: labels to use, one per source.

    Raises:
        OptionError: there is another number of names than of sources, or a name is given twice.
    """
    if names:
        given = list(dict.fromkeys(sources))
        if len(names) != len(given) or len(set(names)) < len(names) or not all(names):
            raise OptionError(
                f"--name {', '.join(names)}: give one name for each of the {len(given)} models,"
                " in their order, each only once"
            )
        return dict(zip(given, names, strict=True))
    short = {source: _short(source) for source in dict.fromkeys(sources)}
    taken = list(short.values())
    return {source: source if taken.count(name) > 1 else name for source, name in short.items()}


def _short(source: str) -> str:
    path = Path(source).expanduser()
    return path.resolve().name or source if path.is_dir() else source


def loaded(source: str, loading: Loading, imports: tuple[str, ...]) -> Model:
    """Load and check a model before anything is printed about it."""
    from interp.model.check import check_model

    loading.require_device()
    import_first(imports)
    [(path, name)] = source_labels([source]).items()
    model = loading.load(path, name)
    check_model(model).require()
    return model


def import_first(names: Sequence[str]) -> None:
    """Import modules by name, or files by path, so that transformers knows their classes.

    Stored results are tied to the present source of these files.

    Raises:
        LoadError: the file or module does not exist, it raises, or another module has its name.
    """
    modules = []
    for name in names:
        path = Path(name).expanduser()
        is_file = path.suffix == ".py" or path.is_file()
        if is_file and not path.is_file():
            raise LoadError(f"--import {name}: there is no such file")
        try:
            with own_code(path):
                module = _import_file(path.resolve()) if is_file else import_module(name)
        except OptionError as error:
            raise LoadError(f"--import {error}") from error
        if is_file and getattr(module, "__file__", None) != str(path.resolve()):
            raise LoadError(
                f"--import {name}: {module.__file__} also has the name {path.stem}; rename your "
                f"file"
            )
        modules.append(module)
    context = click.get_current_context(silent=True)
    if modules and context is not None:
        from interp.model.identity import imported

        context.with_resource(imported(modules))


def _import_file(path: Path) -> Any:
    # Imported under its own name and from its own folder, so that such files can import one
    # another.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    return import_module(path.stem)
