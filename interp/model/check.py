"""Check of a loaded model, or of anything that `load` accepts, and of the kernels on its device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interp.model.calls.sites import softmax_sites
from interp.model.model import Model
from interp.model.model_argument import one_model
from interp.model.precision import float64_or_less
from interp.model.self_check import SelfCheck, check_loaded

if TYPE_CHECKING:
    from interp_kernels.self_test import SelfTest


def check_model(model: Any, seed: int = 1, kernels: bool | None = None) -> SelfCheck:
    """Run the self-check on a few random tokens; anything else that `load` accepts is loaded first.

    Args:
        model: the model, or what `load` accepts.
        seed: seed of the tokens.
        kernels: also compare every kernel of this package that runs on the model's device with its
            definition in float64, for the widths of the model's heads, and measure its speed; by
            default on every device but the CPU. The verdict on a card is kept, and only kernels
            that passed on it are used there by default.

    Raises:
        OptionError: the argument is not a model.
        NonFiniteError: an attention output is NaN or infinite; names the layer.
    """
    loaded = one_model(model, check=False)
    with float64_or_less(loaded.device):
        result = check_loaded(loaded, seed)
        if kernels is None:
            kernels = loaded.elsewhere is None and loaded.device.type != "cpu"
        return replace(result, kernels=tuple(_kernel_tests(loaded))) if kernels else result


def _kernel_tests(model: Model) -> Iterator[SelfTest]:
    from interp_kernels.self_test import self_test
    from interp_kernels.verdicts import Width, keep

    widths = {
        Width(s.n_heads, s.n_kv_heads, s.d_head, s.d_v, model.dtype): None
        for s in softmax_sites(model.sites)
    }
    for width in widths:
        result = self_test(width, model.device)
        if model.device.type == "cuda":
            keep(result)
        yield result
