"""Self-check of a model that is loaded already, or of anything that `load` takes."""

from __future__ import annotations

from typing import Any

from interp.model.given import one_model
from interp.model.self_check import SelfCheck, check_loaded


def check_model(model: Any, seed: int = 1) -> SelfCheck:
    """Run the self-check on a few random tokens; what `load` takes in place of a model is loaded.

    Raises:
        OptionError: it is no model.
        NonFiniteError: an attention's output is NaN or infinite, naming the layer.
    """
    return check_loaded(one_model(model, check=False), seed)
