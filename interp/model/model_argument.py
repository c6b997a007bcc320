"""Model arguments: loaded models, names, folders, hub ids or model objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch import nn

from interp.core.errors import OptionError
from interp.model.load import load
from interp.model.model import Model
from interp.model.precision import float64_or_less
from interp.model.sources.packages import package_of

Rest = ParamSpec("Rest")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Given:
    """Requested model; a named one is loaded when it is first needed.

    Args:
        source: the model, or the text from which `load` finds it.
        name: its name in results.
    """

    source: Model | str
    name: str

    def model(self) -> Model:
        """Return the model, loaded and checked; raises what `load` raises."""
        return self.source if isinstance(self.source, Model) else load(self.source, name=self.name)


def one_model(model: Any, *, check: bool = True) -> Model:
    """Return the model that an argument denotes, loading a named one; `check` as in `load`."""
    if not _is_one(model):
        raise OptionError(_wrong(model).removesuffix(", or a list of these"))
    if isinstance(model, Model):
        return model
    return load(model, name=_name(model) if isinstance(model, (str, Path)) else None, check=check)


def given_models(models: Any) -> list[Given]:
    """Return the models that an argument denotes: one, or a list.

    Model objects are read and checked here, before any is scored; named ones are loaded later, one
    after another, so that several large models fit on the machine. Two folders of one name are
    named by their paths.
    """
    if _is_one(models):
        return [_given(models)]
    if isinstance(models, Mapping) or not isinstance(models, Iterable):
        raise OptionError(_wrong(models))
    listed = list(models)
    for each in listed:
        if not _is_one(each):
            raise OptionError(_wrong(each))
    if not listed:
        raise OptionError("the list of models is empty; give at least one")
    entries = [_given(each) for each in listed]
    names = [given.name for given in entries]
    entries = [
        Given(given.source, given.source)
        if isinstance(given.source, str) and names.count(given.name) > 1
        else given
        for given in entries
    ]
    names = [given.name for given in entries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(
            f"two of the models are called {', '.join(twice)}, and a table distinguishes models"
            " by name; load each under a different name: interp.load(..., name=...)"
        )
    return entries


def _is_one(x: Any) -> bool:
    return isinstance(x, (Model, str, Path, nn.Module)) or package_of(x) is not None


def _given(x: Any) -> Given:
    if isinstance(x, (str, Path)):
        return Given(str(x), _name(x))
    model = x if isinstance(x, Model) else load(x)
    return Given(model, model.name)


def _name(source: str | Path) -> str:
    path = Path(source).expanduser()
    return path.resolve().name or str(source) if path.is_dir() else str(source)


def _wrong(x: Any) -> str:
    return (
        f"{type(x).__name__} is not a model; give what interp.load returns, a name such as"
        " 'bundled:stories', a folder, a hub id or a Hugging Face model, or a list of these"
    )


def takes_model(
    function: Callable[Concatenate[Model, Rest], Found],
) -> Callable[Concatenate[Any, Rest], Found]:
    """Let the first argument of a function, a model, also be a name, folder or object."""

    @wraps(function)
    def call(model: Any, *args: Rest.args, **options: Rest.kwargs) -> Found:
        loaded = model if isinstance(model, Model) else one_model(model)
        with float64_or_less(loaded.device):
            return function(loaded, *args, **options)

    return call
