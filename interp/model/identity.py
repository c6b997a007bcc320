"""Cache key of a run: everything about a model that changes its numbers.

Stored results (scores, coalitions, steps, trees, rows) are reused only if every part is equal:
weights, buffers, config, tokenizer, source code, dtype, device, attention and versions of interp,
torch and transformers. A result of other versions is kept, and recomputed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from interp import __version__
from interp.core.errors import OptionError
from interp.model.content import ADDRESS, checksum_of, unsaved_buffers
from interp.model.source_code import code_of

if TYPE_CHECKING:
    from interp.model.model import Model

# Fields of a config that no computation uses: its location, its author and its format.
COSMETIC = frozenset(
    {"_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "_from_model_config"}
)
_imports: ContextVar[tuple[ModuleType, ...]] = ContextVar("interp_imports", default=())


def identity_of(model: Model) -> dict[str, str]:
    """Return everything that a model's numbers depend on, as plain data by part.

    Costs one pass over the weights; their sha256 is recomputed only if they changed.
    """
    if model.active_edits:
        raise OptionError(
            f"heads are edited ({', '.join(model.active_edits)}), and stored results cannot"
            " distinguish such runs; leave the block, or store nothing"
        )
    if model.elsewhere is not None:
        raise OptionError(
            f"{model.name} runs at {model.elsewhere}, where its weights cannot be compared, so"
            " its results cannot be stored; load it on this machine, or store nothing"
        )
    module = model.module
    generation = getattr(module, "generation_config", None)
    parts = {
        "content_hash": model.content_hash,
        "buffers": checksum_of(unsaved_buffers(module)),
        "config": _hash(_plain([model.config, generation])),
        "tokenizer": tokenizer_hash(model.tokenizer),
    }
    return parts | _runs_as(model)


def architecture_of(model: Model) -> dict[str, Any] | None:
    """Return everything that scores of random weights depend on beside metric, prompts and seed.

    None if a class of the model is defined in a script or notebook: its source does not tell all.
    """
    classes = {type(part) for part in model.module.modules()}
    if any(x.__module__ == "__main__" for x in classes):
        return None
    # functions that another package puts in place of a class's own
    forwards = {f"{x.forward.__module__}.{x.forward.__qualname__}" for x in classes}
    parts = {"config": _hash(_plain([model.config])), "forwards": sorted(forwards)}
    return parts | _runs_as(model)


def _runs_as(model: Model) -> dict[str, str]:
    """Return code, kind of numbers, device and versions."""
    classes = {type(part) for part in model.module.modules()} | {type(model.config)}
    registered = _registered(model.attention)
    return {
        "code": code_of([*classes, *registered, *_imports.get()]),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": model.device.type,
        "attention": " ".join([model.attention, *(f.__qualname__ for f in registered)]),
        "source": model.source,
        "interp": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _registered(attention: str) -> list[FunctionType]:
    """Return the attention function that a user registered under a name, if one did."""
    function = ALL_ATTENTION_FUNCTIONS.get(attention)
    if not isinstance(function, FunctionType) or function.__module__.startswith("transformers."):
        return []
    return [function]


def tokenizer_hash(tokenizer: Any) -> str:
    """Return the sha256 of everything that turns text into ids; "none" without a tokenizer."""
    if tokenizer is None:
        return "none"
    stated: list[Any] = [
        {name: getattr(tokenizer, name, None) for name in _OF_TOKENIZER},
        code_of([type(tokenizer)]),
    ]
    fast = getattr(tokenizer, "backend_tokenizer", None)
    if fast is not None:
        # The text begins with padding and truncation, which every call overrides.
        stated.append(fast.to_str().partition('"added_tokens"')[2])
    elif hasattr(tokenizer, "get_vocab"):
        stated += [tokenizer.get_vocab(), getattr(tokenizer, "init_kwargs", {})]
    else:
        stated.append(getattr(tokenizer, "__dict__", {}))
    return _hash(_plain(stated))


_OF_TOKENIZER = (
    "special_tokens_map",
    "chat_template",
    "padding_side",
    "add_bos_token",
    "add_eos_token",
    "split_special_tokens",
    "clean_up_tokenization_spaces",
)


@contextmanager
def imported(modules: Sequence[ModuleType]) -> Iterator[None]:
    """Include the source of these modules in every model's identity inside the block."""
    token = _imports.set((*_imports.get(), *modules))
    try:
        yield
    finally:
        _imports.reset(token)


def _plain(x: Any) -> Any:
    """Return the JSON of a config, without cosmetic fields, with objects by content."""
    if hasattr(x, "to_dict"):
        x = x.to_dict()
    if isinstance(x, Mapping):
        kept = {str(k): _plain(v) for k, v in x.items() if k not in COSMETIC}
        return dict(sorted(kept.items()))
    if isinstance(x, (list, tuple)):
        return [_plain(y) for y in x]
    if isinstance(x, (set, frozenset)):
        return sorted((_plain(y) for y in x), key=repr)
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    if isinstance(x, (type, torch.dtype, torch.device)) or not hasattr(x, "__dict__"):
        return ADDRESS.sub("", repr(x))
    return [type(x).__name__, _plain(vars(x))]


def _hash(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
