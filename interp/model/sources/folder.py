"""Validation of a model folder, or of a model by its name alone, before torch is imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path

from interp.core.documents import parse_json
from interp.core.errors import LoadError, error_line
from interp.core.shell_line import shell_line
from interp.planted import KINDS, check_known

_INDEX = "model.safetensors.index.json"
_PICKLES = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pt",
    "model.pth",
    "model.ckpt",
)


def is_address(source: str) -> bool:
    """Return True if a source is the address of a server."""
    return source.partition("://")[0] in ("http", "https")


def refuse_address(source: str) -> None:
    """Refuse the address of a server, and what stands beside the package, in place of a model."""
    kind, colon, name = source.partition(":")
    if colon and kind == "variant":
        raise LoadError(
            f"{source}: forms of attention of the literature are not part of the package; in a "
            f"checkout of its repository, load one in Python: training.forms.load({name!r})"
        )
    if is_address(source):
        raise LoadError(
            f"{source} is an address, and a served model gives no heads; "
            f"`{shell_line('check', source)}` prints what can be computed of it"
        )


def check_config(config: Path) -> None:
    """Raise LoadError for a file that is no config of a model."""
    try:
        document = parse_json(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LoadError(f"{config} is not JSON: {error}") from error
    except OSError as error:
        raise LoadError(f"{config} cannot be read: {error.strerror or error}") from error
    if not isinstance(document, dict):
        raise LoadError(
            f"{config} holds a {type(document).__name__}, but a config must be an object"
        )
    classes = document.get("architectures") or []
    if not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
        raise LoadError(
            f"{config}: architectures is {classes!r}; expected a list with the name of the class"
        )
    for name in ("dtype", "torch_dtype"):
        value = document.get(name)
        if value is not None and not isinstance(value, (str, dict)):
            raise LoadError(f"{config}: {name} is {value!r}; expected a name such as 'float32'")


def _check_files(path: Path) -> None:
    for file in sorted(path.iterdir()):
        if file.exists() and not file.is_file() and not file.is_dir():
            raise LoadError(
                f"{file} is a pipe, socket or device, and reading it could block forever; a "
                "model's folder holds regular files"
            )
        if file.suffix == ".safetensors" and file.is_dir():
            raise LoadError(f"{file} is a folder; expected a file of weights")


RUN = "run.json"
"""File of a folder of recorded attention; see `interp.model.sources.recorded_run`."""


def require_model_folder(path: Path) -> None:
    """Check that a folder exists and has a config, or is a recording; raises LoadError."""
    if not path.exists():
        raise LoadError(f"{path} does not exist")
    if not path.is_dir():
        raise LoadError(
            f"{path} is not a folder; give the folder that holds config.json and model.safetensors"
        )
    _check_files(path)
    adapter = path / "adapter_config.json"
    if adapter.exists() and not (path / "config.json").exists():
        try:
            base = parse_json(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
        except (ValueError, KeyError, TypeError):
            base = "its base model"
        raise LoadError(
            f"{path} holds a PEFT adapter, not a model; load it on {base} with "
            "peft.AutoPeftModelForCausalLM.from_pretrained and pass that object to interp.load"
        )
    if not (path / "config.json").exists() and not (path / RUN).is_file():
        raise LoadError(f"{path} has no config.json; it is not a Hugging Face model folder")


def check_folder(path: Path, *, allow_pickle: bool) -> None:
    """Raise for a folder that cannot be loaded, before transformers gives a long traceback."""
    from safetensors import SafetensorError, safe_open

    require_model_folder(path)
    check_config(path / "config.json")
    shards = sorted(path.glob("*.safetensors"))
    if not shards:
        pickles = [p for p in _PICKLES if (path / p).exists()] or [
            p.name for p in path.glob("*.bin")
        ]
        if not pickles:
            raise LoadError(f"{path} has a config but no weights (*.safetensors)")
        if not allow_pickle:
            raise LoadError(
                f"{path} holds its weights as a pickle ({pickles[0]}), and a pickle can run "
                "any code; "
                "convert it to safetensors, or allow it with allow_pickle=True "
                "(--allow-pickle) if you trust it"
            )
    index = path / _INDEX
    if index.exists():
        try:
            wanted = set(parse_json(index.read_text())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LoadError(
                f"{index} is damaged ({error_line(error)}); download or copy it again"
            ) from error
        missing = sorted(wanted - {p.name for p in shards})
        if missing:
            raise LoadError(
                f"{path} lacks {len(missing)} of {len(wanted)} weight files: "
                f"{', '.join(missing[:3])}"
            )
    tensors = entries = 0
    for shard in shards:
        try:
            with safe_open(shard, framework="pt") as file:
                shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
        except SafetensorError as error:
            raise LoadError(
                f"{shard} is damaged or cut short ({error}); download or copy it again"
            ) from error
        tensors, entries = tensors + len(shapes), entries + sum(map(prod, shapes))
    if shards:
        _check_sizes(path / "config.json", tensors, entries)


_LAYERS = re.compile("(num|n)(_[a-z]+)*_layers?$")
_WIDTHS = re.compile("(hidden|intermediate|vocab|embd?|model|head|heads|ffn?|inner|dim|size)s?$")
_SHARED_LAYERS = 100  # more layers than tensors, where layers share weights (ALBERT)


def _check_sizes(config: Path, tensors: int, entries: int) -> None:
    """Raise for sizes that the weights cannot have; building such a model could take hours.

    Sizes that are merely other ones are found when the tensors are loaded.
    """
    todo: list[Mapping] = [parse_json(config.read_text(encoding="utf-8"))]
    while todo:
        for name, value in todo.pop().items():
            if isinstance(value, Mapping):
                todo.append(value)
            if type(value) is not int:
                continue
            if _LAYERS.search(name) and value > tensors + _SHARED_LAYERS:
                most = f"{tensors:,} tensors"
            elif not _LAYERS.search(name) and _WIDTHS.search(name) and value > entries:
                most = f"{entries:,} numbers"
            else:
                continue
            raise LoadError(
                f"{config}: {name} is {value:,}, and the weights beside it hold {most} in all; the "
                "config is damaged or belongs to another model"
            )


_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def require_known(source: str) -> None:
    """Check a model by its name alone; what only its files or the hub can tell is not checked."""
    refuse_address(source)
    kind, colon, name = source.partition(":")
    if colon and kind in KINDS:
        check_known(kind, name)
    elif colon and kind == "bundled":
        from interp import bundled

        bundled.path(name)
    elif Path(source).expanduser().exists() or source.startswith((".", "/", "~")):
        require_model_folder(Path(source).expanduser())
    elif why := _not_on_hub(source):
        raise LoadError(
            f"{source!r} is neither a folder nor a model that the hub or its cache can give "
            f"({why}); check the name, the network and your access"
        )


def require_listed(name: str) -> None:
    """Ask the hub whether it has a model that its cache does not hold; no answer is no error."""
    from huggingface_hub import constants, errors, model_info

    held = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    if constants.HF_HUB_OFFLINE or held.is_dir():
        return
    try:
        model_info(name, timeout=5)
    except errors.RepositoryNotFoundError as error:
        raise LoadError(f"{name!r} is neither a folder nor a model of the hub") from error
    except (errors.HfHubHTTPError, OSError):  # loading it says what is wrong
        return


def _not_on_hub(name: str) -> str:
    if not _HUB_ID.fullmatch(name):
        return "a hub id is NAME or OWNER/NAME, in letters, digits, _, - and ."
    from huggingface_hub import constants

    held = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    return "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE and not held.is_dir() else ""
