"""Contract of an attribution method: one finite score per token, no more read than is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch

from interp.attribution.declaration import AttributionMethod
from interp.attribution.example import Example
from interp.core.registry import ATTRIBUTION_METHODS
from interp.model.model_argument import one_model
from interp.testing.contract import (
    ContractError,
    check_declared_options,
    check_docstring,
    check_example,
    model_unchanged,
    require_kept,
)

if TYPE_CHECKING:
    from interp.model.model import Model

MODEL = "planted:noise"
PROMPT = (7, 12, 9, 30, 7, 12)
"""Token ids of the checks unless another prompt is given."""


def check_attribution_method(
    method: str | AttributionMethod, model: Any = MODEL, prompt: Any = None
) -> None:
    """Check that an attribution method keeps the contract of these methods.

    Its docstring says what it computes and for what it is unsuitable. It gives every token one
    finite score, none below 0 unless it is declared as signed, the same ones when it runs again,
    leaves the model as it was, and takes gradients only if it declares `needs="gradients"`.

    Args:
        method: a name with options if any, the path of a file, or a declared method.
        model: the model to explain, or what `load` accepts.
        prompt: a text or token ids; by default six tokens.

    Raises:
        ContractError: the contract is broken; the sentence says how.
    """
    declared, _ = ATTRIBUTION_METHODS.given(method, {})
    model = one_model(model)
    check_docstring(declared)
    check_declared_options(declared)
    check_example(declared)
    check_token_scores(method, model, prompt)
    check_repeatable(method, model, prompt)
    check_needs(method, model, prompt)


def _explained(method: str | AttributionMethod, model: Model, prompt: Any) -> Any:
    declared, options = ATTRIBUTION_METHODS.given(method, {})
    prompt = [list(PROMPT)] if prompt is None else prompt
    return declared.of(Example(model, prompt, None, -1), **options)


def check_token_scores(method: str | AttributionMethod, model: Model, prompt: Any = None) -> None:
    """Check that each token has a finite score of the declared sign, and that nothing changes."""
    declared, _ = ATTRIBUTION_METHODS.given(method, {})
    with model_unchanged(model, declared.name):
        result = _explained(method, model, prompt)
    scores, n = np.asarray(result.scores), len(result.tokens)
    require_kept(
        scores.shape == (n,) and bool(np.isfinite(scores).all()),
        f"{declared.name} must give one finite score per token; it gives {scores.shape} for {n}",
    )
    require_kept(
        declared.signed or bool((scores >= -1e-9).all()),
        f"{declared.name} is declared with signed=False and must give no score below 0; the lowest"
        f" is {scores.min():.3g}",
    )
    require_kept(
        result.method.partition(":")[0] == declared.name,
        f"the result of {declared.name} must name it; it names {result.method!r}",
    )


def check_repeatable(method: str | AttributionMethod, model: Model, prompt: Any = None) -> None:
    """Check that two runs give the same scores to the last bit."""
    declared, _ = ATTRIBUTION_METHODS.given(method, {})
    one, two = (_explained(method, model, prompt).scores for _ in range(2))
    require_kept(
        np.array_equal(one, two),
        f"{declared.name} must give the same scores when it runs again: draw from a seed",
    )


def check_needs(method: str | AttributionMethod, model: Model, prompt: Any = None) -> None:
    """Check that a method that does not declare gradients takes none."""
    declared, _ = ATTRIBUTION_METHODS.given(method, {})
    if declared.needs == "gradients":
        return

    def refuse(*_: object, **__: object) -> None:
        raise ContractError(
            f"{declared.name} takes a gradient and must declare it: needs='gradients', not"
            f" {declared.needs!r}"
        )

    with (
        patch.object(torch.autograd, "grad", refuse),
        patch.object(torch.Tensor, "backward", refuse),
    ):
        _explained(method, model, prompt)
