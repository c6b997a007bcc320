"""Self-check of a loaded model, or of anything that `load` accepts."""

from __future__ import annotations

from typing import Any

from interp.model.model_argument import one_model
from interp.model.self_check import SelfCheck, check_loaded


def check_model(model: Any, seed: int = 1) -> SelfCheck:
    """Run the self-check on a few random tokens; anything else that `load` accepts is loaded first.

    Raises:
        OptionError: the argument is not a model.
        NonFiniteError: an attention output is NaN or infinite; names the layer.
    """
    return check_loaded(one_model(model, check=False), seed)
