"""Checks that the contracts of all declared functions share."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from interp.core.declaration import Declaration, section
from interp.core.errors import OptionError, UnknownName

if TYPE_CHECKING:
    from interp.model.model import Model


class ContractError(AssertionError):
    """Declared function that breaks its contract; the message is one sentence."""


def require_kept(kept: bool, contract: str) -> None:
    """Raise a ContractError with the sentence unless the contract is kept."""
    if not kept:
        raise ContractError(contract)


@contextmanager
def model_unchanged(model: Model, name: str) -> Iterator[None]:
    """Check that the block leaves weights, gradients and the config of a model as they were."""
    import torch

    from interp.model.content import saved_tensors

    before = {k: v.detach().clone() for k, v in saved_tensors(model.module)}
    config = str(model.config)
    yield
    after = dict(saved_tensors(model.module))
    changed = [k for k, v in before.items() if k not in after or not torch.equal(after[k], v)]
    require_kept(not changed, f"{name} must leave the model as it was; it changed {changed[:3]}")
    left = [k for k, p in model.module.named_parameters() if p.grad is not None]
    require_kept(
        not left, f"{name} must leave no gradients in the model; it left some in {left[:3]}"
    )
    require_kept(
        str(model.config) == config, f"{name} must leave the config of the model as it was"
    )


def check_docstring(declared: Declaration) -> None:
    """Check that a docstring says what the function is and for what it is unsuitable."""
    first = declared.doc.partition("\n")[0].strip()
    require_kept(
        bool(first),
        f"{declared.name} must have a docstring whose first line says what it measures",
    )
    require_kept(
        section(declared.doc, "Not for").endswith("."),
        f"the docstring of {declared.name} must have a paragraph `Not for:`, a sentence on the"
        " purposes for which it is unsuitable",
    )


def check_declared_options(declared: Declaration) -> None:
    """Check that options keep their defaults, and that a wrong name or type is refused."""
    plain = declared.bind()
    require_kept(
        plain.label == declared.name,
        f"{declared.name} without options must have the label {declared.name!r}, not"
        f" {plain.label!r}",
    )
    for name, option in declared.options.items():
        same = declared.bind(**{name: option.parse(str(option.default))})
        require_kept(
            dict(same.options) == dict(plain.options),
            f"the option {name} of {declared.name} must be readable as text; its default"
            f" {option.default!r} is read as {same.options[name]!r}",
        )
        if not option.takes_any:
            _refused(declared, OptionError, f"another type of {name}", **{name: object()})
    _refused(declared, UnknownName, "an unknown option", no_such_option=1)


def _refused(declared: Declaration, error: type[Exception], what: str, **options: Any) -> None:
    try:
        declared.bind(**options)
    except error:
        return
    raise ContractError(f"{declared.name} must refuse {what}")


def check_example(declared: Declaration, **names: Any) -> None:
    """Run the example of a docstring, if there is one, and compare what it prints."""
    known = getattr(declared.function, "__globals__", {}) | names | {declared.name: declared}
    test = doctest.DocTestParser().get_doctest(declared.doc, known, declared.name, None, 0)
    printed: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False)
    runner.run(test, out=printed.append)
    require_kept(
        runner.failures == 0,
        f"the example in the docstring of {declared.name} must print what it shows: "
        + " ".join("".join(printed).split()),
    )
