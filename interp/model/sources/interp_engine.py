"""Adapter for models held by interp-engine; the only module that imports that package.

Its eager backend runs an unchanged Hugging Face model, which is read like any other. Its vLLM
backends run in worker processes: what comes back are detached activations of declared points, so
no module can be edited, differentiated or checked here, and they are refused.
"""

from __future__ import annotations

import copy
from typing import Any

import interp_engine  # pyright: ignore[reportMissingImports]
from torch import nn

from interp.core.errors import LoadError
from interp.model.sources.packages import Held
from interp.model.sources.placement import require_here

engine: Any = interp_engine  # without the package, a type checker takes it for this file
_NO_TOKENIZER = object()  # the package would look for a tokenizer by the model's name


def unwrap(held: Any, attention: str | None = None) -> Held:
    """Return the Hugging Face model that the eager backend runs."""
    if isinstance(held, engine.SyncModel):
        held = held.model
    if not isinstance(held, engine.EagerModel):
        raise LoadError(
            f"this {type(held).__name__} of interp-engine has no module in this process: edits, "
            "gradients, logits and the check of the captured attention are missing; load it with "
            'load_model(..., backend="eager")'
        )
    if attention is not None:
        raise LoadError("attention cannot be chosen of a model that interp-engine holds")
    module = held.hf_model
    _require_no_steering(module)
    require_here(module, held.hf_model_id)
    tokenizer = None if held.tokenizer is _NO_TOKENIZER else held.tokenizer
    return Held(module, tokenizer, held.hf_model_id, "interp-engine, the module")


def wrap(module: nn.Module, tokenizer: Any) -> Any:
    """Return the eager model of interp-engine around a Hugging Face model, which it freezes."""
    kind = type(module).__name__
    config: Any = module.config
    # a copy, since a tokenizer without a padding token is given one
    copied = _NO_TOKENIZER if tokenizer is None else copy.deepcopy(tokenizer)
    try:
        return engine.EagerModel(
            config.name_or_path or kind,
            hf_model=module,
            tokenizer=copied,
            trust_remote_code=False,
        )
    except (ValueError, AttributeError, RuntimeError) as error:
        why = str(error).strip().partition("\n")[0][:200]
        raise LoadError(
            f"interp-engine cannot hold {kind} ({why}); read it with the source 'transformers'"
        ) from error


def _require_no_steering(module: nn.Module) -> None:
    """Raise if the package's hooks are on the model, whose effects results would not name."""
    for path, part in module.named_modules():
        for hook in (*part._forward_hooks.values(), *part._forward_pre_hooks.values()):
            if getattr(hook, "__module__", "").partition(".")[0] == "interp_engine":
                raise LoadError(
                    f"interp-engine steers this model at {path}, which would change what is read "
                    "without being named in the results; load it outside the `with`, and use edits"
                )
