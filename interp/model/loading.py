"""Loading of models for many steps: options, labels, and modules that are imported first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import LoadError, OptionError
from interp.core.protocols import Progress, silent
from interp.core.registry import own_code
from interp.model.sources.registered import PLAIN

if TYPE_CHECKING:
    from interp.model.model import Model


_OWN = ("through", "remote", "imports", "session", "note")


@dataclass(frozen=True)
class Loading:
    """Options for loading models.

    Args:
        device: see `interp.load`, as the next ones.
        dtype: data type of the weights.
        attention: attention implementation.
        revision: revision of a hub model.
        trust_remote_code: allow code that comes with a checkpoint.
        allow_pickle: allow pickled weights.
        through: the library that loads the model, or the default one.
        device_map: distribution of layers over devices.
        remote: the nnsight server that runs the model, or "local".
        tp_plan: spreads heads over the processes of torchrun.
        offload: leaves the weights in their files, read as they run.
        chat: reads texts as a user's turn in the tokenizer's chat template.
        imports: modules and files that are imported first.
        session: while it is open, nothing but this process changes the weights of its models, and
            float64 is narrowed on the device of a model that has none.
        note: called with what a user should know of a model.
    """

    device: str | None = None
    dtype: str | None = None
    attention: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    through: str | None = None
    device_map: str | None = None
    remote: str | None = None
    tp_plan: str | None = None
    offload: bool = False
    chat: bool = False
    imports: tuple[str, ...] = ()
    session: ExitStack | None = field(default=None, compare=False, repr=False)
    note: Callable[[str], None] | None = field(default=None, compare=False, repr=False)

    @property
    def on_cpu(self) -> bool:
        """True if the model runs in this process on the CPU."""
        return self.device in (None, "cpu") and self.device_map is None and self.remote is None

    def load(self, source: str, name: str, progress: Progress = silent) -> Model:
        """Return the model, loaded with a progress bar and not yet checked; raises InterpError."""
        from interp.model.precision import float64_or_less

        progress("loading", 0, 1)
        model = self._loaded(source, name)
        if self.session is not None:
            self.session.enter_context(float64_or_less(model.device))
        progress("loading", 1, 1)
        return model

    def _loaded(self, source: str, name: str) -> Model:
        from interp.core.chat import has_template
        from interp.model.content import hold
        from interp.model.load import load
        from interp.model.sources.packages import adapter, wrapped
        from interp.model.surplus import described

        if self.remote is not None:
            return self._elsewhere(source, name)
        through = self.through or PLAIN
        if through != PLAIN:
            adapter(through)  # checked before any weights are read
            if self.offload:
                raise OptionError(
                    f"--offload cannot be combined with --source {through}, which holds all "
                    "weights in memory"
                )
        options = {k: v for k, v in vars(self).items() if k not in _OWN}
        model = load(source, name=name, check=False, **options)
        if self.note is not None and model.unused:
            self.note(f"{model.name}: {described(model.unused)}")
        if through != PLAIN:
            held, loaded = wrapped(through, model.module, model.tokenizer), model
            model = load(held, tokenizer=loaded.tokenizer, name=name, check=False, chat=self.chat)
            model.revision, model.unused = loaded.revision, loaded.unused
        if self.note is not None and has_template(model.tokenizer):
            how = "as the user's turn in" if self.chat else "without"
            note = f"{name} has a chat template; texts are read {how} it (chat={self.chat})"
            model.reading_text = cache(partial(self.note, note))  # once, if a text is read
        if self.session is not None and model.elsewhere is None:
            self.session.callback(hold(model.module))
        return model

    def _elsewhere(self, source: str, name: str) -> Model:
        """Return a model that an nnsight server runs, or with "local" the same run here."""
        from interp.model.load import load
        from interp.model.sources.packages import adapter, wrapped

        given = {
            "--source": self.through,
            "--device": self.device,
            "--dtype": self.dtype,
            "--attention": self.attention,
            "--device-map": self.device_map,
            "--tp-plan": self.tp_plan,
            "--offload": self.offload or None,
        }
        wrong = [option for option, value in given.items() if value is not None]
        if wrong:
            raise OptionError(
                f"{', '.join(wrong)} cannot be combined with --remote: the server decides how the "
                "model runs"
            )
        here = adapter("nnsight")  # checked before any weights are read
        if self.remote == "local":
            plain = load(
                source,
                name=name,
                check=False,
                revision=self.revision,
                trust_remote_code=self.trust_remote_code,
                allow_pickle=self.allow_pickle,
            )
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

    def checked(self, source: str, name: str, progress: Progress) -> Model:
        """Return the model, loaded with a progress bar and checked; raises InterpError."""
        from interp.model.check import check_model

        model = self.load(source, name, progress)

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


def source_labels(sources: Sequence[str], names: Sequence[str] = ()) -> dict[str, str]:
    """Return the label of each source: a folder's name, or its path if names repeat."""
    if names:
        given = list(dict.fromkeys(sources))
        if len(names) != len(given) or len(set(names)) < len(names) or not all(names):
            raise OptionError(
                f"name={', '.join(names)}: give one name for each of the {len(given)} models,"
                " in their order, each only once"
            )
        return dict(zip(given, names, strict=True))
    short = {source: _short(source) for source in dict.fromkeys(sources)}
    taken = list(short.values())
    return {source: source if taken.count(name) > 1 else name for source, name in short.items()}


def _short(source: str) -> str:
    path = Path(source).expanduser()
    return path.resolve().name or source if path.is_dir() else source


def import_first(names: Sequence[str], session: ExitStack | None = None) -> None:
    """Import modules by name, or files by path, so that transformers knows their classes.

    Stored results are tied to the present source of these files.
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
    if modules and session is not None:
        from interp.model.identity import imported

        session.enter_context(imported(modules))


def _import_file(path: Path) -> Any:
    # Imported under its own name and from its own folder, so that such files can import one
    # another.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    return import_module(path.stem)
