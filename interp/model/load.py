"""Loading of models from hub ids, folders, bundled and planted models, and model objects.

Checkpoints are untrusted: weights are read from safetensors, and pickles and code in a checkpoint
run only with explicit permission. A loaded model is run on a few tokens and refused if its captured
attention does not reproduce its own output.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from interp.core.chat import has_template
from interp.core.errors import LoadError, NonFiniteError, UnknownName, error_line, is_panic
from interp.core.interrupts import held
from interp.core.random_state import drawn_with
from interp.model.content import plain_tensors
from interp.model.model import Model
from interp.model.precision import float64_or_less
from interp.model.self_check import check_loaded
from interp.model.sources.described import (
    UNLOADABLE,
    class_of,
    config_of,
    needs_code,
    require_finite_config,
)
from interp.model.sources.folder import RUN, check_folder, refuse_address
from interp.model.sources.packages import adapter, package_of
from interp.model.sources.placement import placement, require_here
from interp.model.sources.recorded_run import recorded_run
from interp.model.sources.wrappers import require_tensors, unwrapped
from interp.model.surplus import surplus
from interp.planted import KINDS, module_of

_log = logging.getLogger(__name__)
_BUILT = tuple(f"{kind}:" for kind in KINDS)


def load(
    source: str | Path | nn.Module | Any,
    *,
    tokenizer: Any = None,
    name: str | None = None,
    revision: str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    attention: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    check: bool = True,
    remote: bool | str = False,
    device_map: str | dict | None = None,
    tp_plan: str | dict | None = None,
    offload: bool = False,
    chat: bool = False,
) -> Model:
    """Load a model and check that its heads can be read.

    A model object is used as it is: neither it nor its config is changed. Inside a compiled,
    parallel or PEFT wrapper the wrapped model is read, adapters included. A checkpoint with tensors
    of the base model that its class does not use is refused; tensors of a head of another task are
    listed in `Model.unused` and in provenance.

    Args:
        source: a hub id, a folder (of a checkpoint, or of attention that a server recorded; see
            `interp.model.sources.recorded_run`), `bundled:NAME`, `planted:NAME`, `compiled:NAME`,
            `trained:NAME`, a Hugging Face model, a TransformerLens bridge, an nnsight model or an
            eager model of interp-engine.
        tokenizer: tokenizer for text prompts; by default the one beside the weights.
        name: name of the model in results; by default the source.
        revision: revision of a hub id.
        device: device to load on; a model object stays where it is.
        dtype: data type to load in; a model object keeps its own.
        attention: attention implementation, such as "sdpa" or "eager"; by default the model's own
            choice.
        trust_remote_code: run code that comes with the checkpoint.
        allow_pickle: read pickled weights, which can run code.
        check: run the self-check on a few tokens; `interp check` prints its result.
        remote: for an nnsight model: run it on its server (True, or the server's address) and
            receive only numbers per head; "local" does this in the present process, for testing.
        device_map: spread layers over this machine's devices, such as "auto" (needs accelerate).
        tp_plan: spread heads over processes started by torchrun: "auto" uses the family's plan.
        offload: leave the weights in their safetensors files and read each part (an attention, an
            MLP, an embedding) when it runs, for a model larger than memory. The numbers are the
            same; each forward pass reads the weights once, and batches of one score share a read.
        chat: read texts given as prompts or documents as the user's turn in the tokenizer's chat
            template. Token ids and lists of messages are read as they are; analyses that label
            words or characters (syntax, sentences, probes of words) read the text alone.

    Raises:
        LoadError: the source is missing or damaged, needs permission that was not given, or has no
            chat template.
        UnreadableAttention: the model has no softmax attention, or it cannot be reached.
        CheckError: the captured attention does not reproduce the model's own output.
        NonFiniteError: NaN or infinity in the weights.
    """
    _require_device(device)
    package = package_of(source)
    spread = {"device_map": device_map, "tp_plan": tp_plan, "offload": offload or None}
    if package is not None or isinstance(source, nn.Module) or str(source).startswith(_BUILT):
        _refuse(spread, "for a model that is already loaded")
    if remote and not (package and hasattr(adapter(package), "remote")):
        raise LoadError("remote= is for nnsight models; wrap this one: nnsight.TransformersModel")
    if package is not None:
        given = {"device": device, "dtype": dtype, "revision": revision}
        _refuse(given, f"for a model held by {package}")
        if remote:
            _refuse({"attention": attention}, "for a model that runs on another machine")
            elsewhere = adapter(package).remote(source, remote, name, tokenizer)
            if check:
                check_loaded(elsewhere).require()
            return _ready(elsewhere, chat)
        held = adapter(package).unwrap(source, attention)
        model = _adopt(
            held.module,
            tokenizer or held.tokenizer,
            name or held.name or _name_of(held.module),
            None,
            check,
        )
        model.source = held.source
        return _ready(model, chat)
    if isinstance(source, nn.Module):
        given = {"device": device, "dtype": dtype, "attention": attention, "revision": revision}
        _refuse(given, "for a model object")
        return _ready(_adopt_object(source, tokenizer, name, check), chat)
    source = str(source)
    kind, _, rest = source.partition(":")
    refuse_address(source)
    if f"{kind}:" in _BUILT:
        module: Any = module_of(kind, rest)
        module.to(device=device, dtype=_dtype(dtype))
        if attention is not None:
            module.set_attn_implementation(attention)
        return _ready(_adopt(module, tokenizer, name or source, None, check), chat)
    folder = str(_bundled(rest)) if kind == "bundled" else source
    path = Path(folder).expanduser()
    local = os.path.exists(path) or folder.startswith((".", "/", "~"))
    if local and (path / RUN).is_file():
        given = {**spread, "attention": attention, "dtype": dtype, "device": device}
        _refuse(given, "for attention that was recorded")
        return _ready(recorded_run(path, name, tokenizer), chat)
    if local:
        check_folder(path, allow_pickle=allow_pickle)
        folder = str(path)
    options: dict[str, Any] = {
        "trust_remote_code": trust_remote_code,
        "revision": revision,
        "dtype": _dtype(dtype) or "auto",
        "use_safetensors": None if allow_pickle else True,
        "attn_implementation": attention,
        **placement(device=device, **spread),
    }
    module, found_revision, unused = _from_pretrained(folder, options, local, offload)
    if tokenizer is None:
        tokenizer = _tokenizer(folder, local, trust_remote_code, module.config)
    if device is not None:
        module = module.to(device)
    require_here(module, folder)
    module.eval()
    given_name = path.resolve().name if local and kind != "bundled" else source
    model = _adopt(module, tokenizer, name or given_name, found_revision, check)
    model.unused = unused
    return _ready(model, chat)


def _ready(model: Model, chat: bool) -> Model:
    if chat and not has_template(model.tokenizer):
        raise LoadError(f"{model.name} has no chat template; leave out chat=True (--chat)")
    model.chat = chat
    _log.info(
        "loaded %s: %s, %d attentions, %s on %s",
        model.name,
        type(model.module).__name__,
        len(model.sites),
        model.dtype,
        model.elsewhere or model.device,
    )
    return model


def _refuse(given: dict[str, Any], of_what: str) -> None:
    wrong = [k for k, v in given.items() if v is not None]
    if wrong:
        raise LoadError(f"{', '.join(wrong)} cannot be chosen {of_what}; it is used as it is")


def _adopt_object(source: nn.Module, tokenizer: Any, name: str | None, check: bool) -> Model:
    module, wrappers = unwrapped(source)
    require_here(module, name or _name_of(module))
    model = _adopt(module, tokenizer, name or _name_of(module), None, check)
    if wrappers:
        model.source = f"{model.source}, inside {' and '.join(wrappers)}"
    return model


def _adopt(
    module: nn.Module, tokenizer: Any, name: str, revision: str | None, check: bool
) -> Model:
    from interp.model.locate.probe import probe

    if not hasattr(module, "config"):
        raise LoadError(
            f"{type(module).__name__} is not a Hugging Face model (it has no config); "
            "pass a transformers PreTrainedModel, a folder or a hub id"
        )
    require_tensors(module, name)
    require_finite_config(module.config, name)
    for key, _ in module.named_parameters():
        x = module.get_parameter(key)
        numbers = (part for part in plain_tensors(x) if part.is_floating_point())
        if not all(_finite(part) for part in numbers if part.device.type != "meta"):
            raise NonFiniteError(
                f"{name}: NaN or infinity in the weights {key}; the checkpoint is damaged"
            )
    with (
        held(),
        float64_or_less(_device(module)),
        drawn_with(None),
    ):  # some models draw random numbers in their forward pass
        model = probe(module, name, tokenizer, revision)
        if check:
            check_loaded(model).require()
    return model


def _require_device(device: str | torch.device | None) -> None:
    """Raise LoadError for a device that does not exist here."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise LoadError(
            f"the device {str(device)!r} cannot be used here ({error_line(error)}); give cpu, "
            "cuda, cuda:1 or mps, as this machine has them"
        ) from error


def _device(module: nn.Module) -> torch.device:
    """Return the device of a module's first parameter; the CPU if it has none."""
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def _finite(x: torch.Tensor) -> bool:
    """Return True if no entry is NaN or infinite; a finite sum, which is cheaper, proves it."""
    with torch.no_grad():
        return bool(torch.isfinite(x.sum())) or bool(torch.isfinite(x).all())


def _name_of(module: nn.Module) -> str:
    path = getattr(getattr(module, "config", None), "name_or_path", "") or ""
    return Path(path).name if Path(path).is_absolute() else path or type(module).__name__


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    known = {
        "float32": torch.float32,
        "bfloat16": torch.bfloat16,
        "float16": torch.float16,
        "float64": torch.float64,
    }
    if dtype not in known:
        raise UnknownName("dtype", dtype, known)
    return known[dtype]


def _bundled(name: str) -> Path:
    from interp import bundled

    return bundled.path(name)


def _from_pretrained(
    folder: str, options: dict[str, Any], local: bool, offload: bool
) -> tuple[nn.Module, str | None, tuple[str, ...]]:
    from transformers.utils import logging as shown

    config = config_of(folder, options, local)
    cls = class_of(config, folder, options["trust_remote_code"])
    level, bars = shown.get_verbosity(), shown.is_progress_bar_enabled()
    shown.set_verbosity_error()
    shown.disable_progress_bar()
    try:
        if offload:
            from interp.model.offload import offloaded

            module, info = offloaded(cls, folder, config, _accepted(options))
        else:
            # differing shapes are reported by name below; transformers' error only points at a log
            module, info = cls.from_pretrained(
                folder,
                config=config,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **_accepted(options),
            )
    except UNLOADABLE as error:
        if "trust_remote_code" in str(error):
            raise LoadError(needs_code(folder)) from error
        if "safetensors" in str(error) and options["use_safetensors"]:
            raise LoadError(
                f"{folder} has no safetensors weights; pickled ones can run any code, so they "
                "are read "
                "only with allow_pickle=True (--allow-pickle)"
            ) from error
        raise LoadError(f"{folder} cannot be loaded: {error_line(error)}") from error
    finally:
        shown.set_verbosity(level)
        if bars:
            shown.enable_progress_bar()
    missing = sorted(
        k for k in info["missing_keys"] if not re.search(r"position_ids|inv_freq|rotary", k)
    )
    if missing:
        raise LoadError(
            f"{folder}: the checkpoint lacks {len(missing)} tensors of {cls.__name__} "
            f"({', '.join(missing[:3])}); they would be random numbers"
        )
    if info.get("mismatched_keys"):
        raise LoadError(
            f"{folder}: tensors do not have the config's shapes: "
            f"{sorted(map(str, info['mismatched_keys']))[:2]}"
        )
    unexpected = info["unexpected_keys"]
    unused = surplus(module, unexpected, folder) if unexpected else ()
    return module, None if local else _commit(folder, options["revision"]), unused


def _commit(repo: str, revision: str | None) -> str | None:
    """Return the commit that the hub's cache holds for a revision, which may move later."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repo, "config.json", revision=revision)
    return Path(path).parent.name if isinstance(path, str) else revision


def _accepted(options: dict[str, Any]) -> dict[str, Any]:
    return {
        k: v
        for k, v in options.items()
        if v is not None and not (k == "trust_remote_code" and not v)
    }


def _tokenizer(folder: str, local: bool, trusted: bool, config: Any) -> Any:
    """Load the tokenizer beside the weights, or return None where there is none."""
    from transformers import AutoTokenizer

    if local and not any((Path(folder) / n).exists() for n in _TOKENIZER_FILES):
        return None
    try:
        # the config is not read a second time
        return AutoTokenizer.from_pretrained(folder, config=config, trust_remote_code=trusted)
    except BaseException as error:
        if not is_panic(error) and not isinstance(error, _UNREADABLE_TOKENIZER):
            raise
        if local or is_panic(error):
            raise LoadError(
                f"{folder}: its tokenizer cannot be read: {error_line(error)}"
            ) from error
        return None  # a hub model without one: text prompts then raise


_UNREADABLE_TOKENIZER = (OSError, ValueError, KeyError, ImportError, AttributeError, TypeError)
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)
