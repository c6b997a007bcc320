"""Config and class of a model folder or hub id, and the module that they describe."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from interp.core.documents import parse_json
from interp.core.errors import LoadError, NonFiniteError, error_line
from interp.model.sources.folder import check_config

MOST_LAYERS = 1000
"""Layers of a model without weights; to build many more of them takes hours."""

# errors that classes raise for sizes that are zero, not numbers or inconsistent
_ODD_CONFIG = (TypeError, ZeroDivisionError, AttributeError, KeyError, IndexError)
UNLOADABLE = (OSError, ValueError, ImportError, RuntimeError, SafetensorError, *_ODD_CONFIG)


def module_of_config(folder: str) -> nn.Module:
    """Return the model that a folder's config describes, as its class initialises it."""
    check_config(Path(folder) / "config.json")
    config = config_of(folder, {"trust_remote_code": False, "revision": None}, local=True)
    cls = class_of(config, folder, trusted=False)
    if (layers := getattr(config.get_text_config(), "num_hidden_layers", 0)) > MOST_LAYERS:
        raise LoadError(f"{folder}: a model of {layers} layers; at most {MOST_LAYERS} are planned")
    try:
        return cls.from_config(config) if hasattr(cls, "from_config") else cls(config)
    except UNLOADABLE as error:
        raise LoadError(f"{folder}: the config cannot be used: {error_line(error)}") from error


def config_of(folder: str, options: dict[str, Any], local: bool) -> Any:
    """Return the config of a folder or a hub id; raises LoadError if it cannot be used."""
    from huggingface_hub.errors import HFValidationError, StrictDataclassError
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            folder, trust_remote_code=options["trust_remote_code"], revision=options["revision"]
        )
    except (OSError, HFValidationError) as error:
        if local:
            raise LoadError(f"{folder}: the config cannot be read: {error_line(error)}") from error
        raise LoadError(why_not_from_hub(folder, error, options["revision"])) from error
    except (StrictDataclassError, *_ODD_CONFIG) as error:
        raise LoadError(f"{folder}: the config cannot be used: {error_line(error)}") from error
    except ValueError as error:
        if "trust_remote_code" in str(error):
            raise LoadError(needs_code(folder)) from error
        config = config_of_imported(folder) if local else None
        if config is None:
            why = error_line(error).partition(". ")[0]
            raise LoadError(f"{folder}: {why}; import its class first (--import FILE)") from error
    require_finite_config(config, folder)
    asked = options.get("attn_implementation")
    named = [asked, *(_kernels_named(config) if asked is None else ())]
    hub = next((x for x in named if isinstance(x, str) and "/" in x), None)
    if hub is not None and not options["trust_remote_code"]:
        raise LoadError(
            f"{folder}: the attention {hub!r} is code of the hub, which would run here; allow it "
            "with trust_remote_code=True (--trust-remote-code), or choose another implementation "
            "with attention= (--attention eager)"
        )
    return config


def require_finite_config(config: Any, name: str) -> None:
    """Refuse a config with a number that is not finite, such as the epsilon of a norm.

    An upper limit (a name with "max" or "limit") may be infinite, as in the configs of Mamba.
    """
    todo: list[tuple[str, Any]] = [("", getattr(config, "__dict__", {}))]
    seen: set[int] = set()
    while todo:
        where, value = todo.pop()
        if hasattr(value, "to_dict") and id(value) not in seen:
            seen.add(id(value))
            value = vars(value)
        if isinstance(value, Mapping):
            todo += [(f"{where}.{key}".lstrip("."), x) for key, x in value.items()]
        elif isinstance(value, (list, tuple)):
            todo += [(where, x) for x in value]
        elif isinstance(value, float) and not (
            math.isfinite(value) or (value == math.inf and re.search("max|limit", where))
        ):
            raise NonFiniteError(
                f"{name}: the config states {where} = {value}; expected a finite number"
            )


def _kernels_named(config: Any) -> Iterator[Any]:
    """Yield the implementations that a config and the configs inside it name."""
    for name in ("_attn_implementation", "_experts_implementation"):
        yield getattr(config, name, None)
    for inside in vars(config).values():
        if hasattr(inside, "to_dict") and inside is not config:
            yield from _kernels_named(inside)


def why_not_from_hub(name: str, error: BaseException, revision: str | None) -> str:
    """Return why the hub gives no files of a model, and what to do, from the error behind it."""
    from huggingface_hub import errors, get_token

    causes: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in causes:
        causes.append(at)
        at = at.__cause__ or at.__context__
    token = "a token is set, which may lack the right" if get_token() else "no token is set"
    login = f"{token}: set HF_TOKEN, or run `hf auth login`"

    def is_a(*kinds: type[BaseException]) -> bool:
        return any(isinstance(x, kinds) for x in causes)

    if is_a(errors.GatedRepoError):
        return (
            f"{name}: access to this model is granted on its page https://huggingface.co/{name}; "
            f"ask for it there with your account ({login})"
        )
    if is_a(errors.RevisionNotFoundError):
        return f"{name} has no revision {revision!r}; its page lists branches, tags and commits"
    if is_a(errors.RepositoryNotFoundError):
        return (
            f"{name!r} is neither a folder nor a model of the hub that you may see; check the "
            f"name, and for a private model your access ({login})"
        )
    if is_a(errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError):
        return (
            f"{name!r} is neither a folder nor a model in the hub's cache, and the hub cannot be "
            "reached (or HF_HUB_OFFLINE is set); give a folder, or run once with the network"
        )
    return (
        f"{name!r} is neither a folder nor a model that the hub or its cache can give "
        f"({error_line(error)}); check the name, the network and your access"
    )


def class_of(config: Any, folder: str, trusted: bool) -> Any:
    """Return the class the checkpoint was saved from, including the head it was trained with."""
    import transformers

    names = list(getattr(config, "architectures", None) or [])
    remote = getattr(config, "auto_map", None) or {}
    for name in names:
        cls = getattr(transformers, name, None)
        cls = cls or next((c for c in imported_classes() if c.__name__ == name), None)
        if cls is not None and not (remote and trusted):
            return cls
    if remote and not trusted:
        raise LoadError(needs_code(folder))
    if names and not remote:  # the standard class of that model type may compute something else
        raise LoadError(
            f"{folder}: no class {' or '.join(names)} is known; import the file that defines it "
            "first (--import FILE)"
        )
    if len(of_task := [name for name in remote if name.startswith("AutoModelFor")]) == 1:
        return getattr(transformers, of_task[0])
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModel):
        if type(config) in auto._model_mapping or any(auto.__name__ in k for k in remote):
            return auto
    raise LoadError(
        f"{folder}: no class for {config.model_type!r}; import the file that defines it first "
        "(--import FILE)"
    )


def needs_code(folder: str) -> str:
    """Return the message for a checkpoint that brings code of its own."""
    return (
        f"{folder} needs code that comes with the checkpoint; read that code, and if you trust it "
        "pass trust_remote_code=True (--trust-remote-code)"
    )


def config_of_imported(folder: str) -> Any:
    """Read the config of a folder whose class was imported; None if it was not."""
    raw = parse_json((Path(folder) / "config.json").read_text())
    for cls in imported_classes():
        if cls.__name__ in (raw.get("architectures") or []):
            return cls.config_class.from_pretrained(folder)
    return None


def imported_classes() -> list[type]:
    """Return the subclasses of PreTrainedModel in all imported modules, at any depth."""
    from transformers import PreTrainedModel

    classes, todo = [], [PreTrainedModel]
    while todo:
        for cls in todo.pop().__subclasses__():
            classes.append(cls)
            todo.append(cls)
    return classes
