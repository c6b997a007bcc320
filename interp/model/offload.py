"""Models whose weights stay in their files: each part is read when it runs, and then freed.

The files are memory-mapped safetensors, so nothing is written to the disk. Names and forms of
checkpoint tensors are brought into those of the class by transformers' own rules, part by part.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from interp.core.errors import LoadError, error_line
from interp.core.memory import available_bytes
from interp.core.random_state import drawn_with
from interp.model.content import saved_tensors
from interp.model.initialisation import initialising_calls
from interp.model.skeleton import parts_of, skeleton
from interp.model.streamed import Streamed, WeightPart

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True)
class Stored:
    """A tensor of a checkpoint: its file, type and shape."""

    file: str
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Recipe:
    """Checkpoint tensors that give one or several tensors of the module.

    Args:
        target: the first of those tensors.
        converter: transformers' conversion, without tensors; None for a tensor as it is stored.
        sources: name of each checkpoint tensor, with the pattern of the conversion that matches it.
    """

    target: str
    converter: Any
    sources: tuple[tuple[str, str], ...]

    def convert(self, tensors: Mapping[str, Tensor], module: Any) -> dict[str, Tensor]:
        """Return the tensors of the module, by name."""
        if self.converter is None:
            return {self.target: tensors[self.sources[0][0]]}
        converter = copy.deepcopy(self.converter)
        for source, pattern in self.sources:
            converter.add_tensor(self.target, source, pattern, lambda x=tensors[source]: x)
        converted = converter.convert(self.target, model=module, config=module.config)
        return {name: x[0] if isinstance(x, list) else x for name, x in converted.items()}


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The tensors of a checkpoint by name, and the way from them to those of a module."""

    folder: str
    stored: Mapping[str, Stored]
    made_by: dict[str, Recipe]

    def read(self, names: Iterable[str], module: Any) -> dict[str, Tensor]:
        """Return tensors of the module by name, mapped from the files where they need no change."""
        wanted = set(names)
        recipes = dict.fromkeys(self.made_by[name] for name in names)
        sources = [name for recipe in recipes for name, _ in recipe.sources]
        read: dict[str, Tensor] = {}
        try:
            with ExitStack() as opened:
                files = {
                    file: opened.enter_context(safe_open(file, framework="pt"))
                    for file in dict.fromkeys(self.stored[name].file for name in sources)
                }
                for name in sources:
                    read[name] = files[self.stored[name].file].get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise LoadError(
                f"{self.folder}: its weights cannot be read any more ({error_line(error)}); an "
                "offloaded model reads its files as it runs, so they must stay as they are"
            ) from error
        values: dict[str, Tensor] = {}
        for recipe in recipes:
            converted = recipe.convert(read, module)
            values |= {name: x for name, x in converted.items() if name in wanted}
        return values


def offloaded(
    cls: Any, folder: str, config: Any, options: Mapping[str, Any]
) -> tuple[nn.Module, dict[str, list[str]]]:
    """Return the module of a checkpoint, its weights read from the files as it runs.

    Names of tensors that are missing, mismatched or unexpected are returned as `from_pretrained`
    returns them; with one that is missing or mismatched the module has no weights.
    """
    if getattr(config, "quantization_config", None) is not None:
        raise LoadError(
            f"{folder} holds packed weights (quantization_config), which are unpacked as a whole "
            "when they are loaded; leave out offload, or give the checkpoint before quantising"
        )
    files = _files(folder, options.get("revision"))
    stored = _stored(files)
    dtype = options["dtype"]
    if dtype == "auto":
        floats = [x.dtype for x in stored.values() if x.dtype.is_floating_point]
        dtype = config.dtype or next(iter(floats), torch.float32)
    kernel = {k: options[k] for k in ("attn_implementation",) if k in options}
    config = copy.deepcopy(config)
    config.name_or_path = folder
    module = skeleton(lambda: cls._from_config(config, dtype=dtype, **kernel))
    device = torch.device(options.get("device") or "cpu")
    for inner in module.modules():
        inner._buffers |= {k: x.to(device) for k, x in inner._buffers.items() if x is not None}
    if module.can_generate() and hasattr(module, "adjust_generation_fn"):
        module.adjust_generation_fn(
            None,
            False,
            None,
            folder,
            cache_dir=None,
            force_download=False,
            proxies=None,
            local_files_only=False,
            token=None,
            subfolder="",
            revision=options.get("revision"),
            trust_remote_code=options.get("trust_remote_code", False),
        )
    checkpoint, unexpected = _plan(module, folder, stored)
    saved = _saved(module)
    missing, mismatched = _compare(module, checkpoint, saved)
    computed = _computed(
        module,
        [
            n
            for n in dict(module.named_parameters())
            if n not in checkpoint.made_by and n not in missing
        ],
    )
    info = {"missing_keys": missing, "mismatched_keys": mismatched, "unexpected_keys": unexpected}
    if missing or mismatched:
        return module, info
    _require_ties(module, checkpoint)
    _read_buffers(module, checkpoint, saved, device)
    plan = module._get_dtype_plan(dtype)
    like = {name: (_dtype(name, p.dtype, plan), device) for name, p in module.named_parameters()}
    parts = parts_of(module)
    _require_room(folder, parts, module, like)
    reading = skeleton(lambda: cls._from_config(config, **kernel))  # converters read its sizes

    def make(part: WeightPart) -> dict[str, Tensor]:
        read = checkpoint.read([n for n in part.parameters if n not in computed], reading)
        read |= {name: computed[name] for name in part.parameters if name in computed}
        return {name: x.to(like[name][1], like[name][0]) for name, x in read.items()}

    stats = [
        (file, stat.st_size, stat.st_mtime_ns) for file in files for stat in [Path(file).stat()]
    ]
    Streamed(module, parts, make, like, f"{stats} {dtype}")
    module.register_state_dict_pre_hook(_refuse_state_dict)
    return module, info


def _refuse_state_dict(module: nn.Module, *_: object) -> None:
    raise LoadError(
        f"the weights of this {type(module).__name__} are offloaded, so they cannot be copied or "
        "saved as a whole; load the model without offload"
    )


def _files(folder: str, revision: str | None) -> list[str]:
    from transformers.utils.hub import cached_file, get_checkpoint_shard_files

    given = {"revision": revision, "_raise_exceptions_for_missing_entries": False}
    try:
        index = cached_file(folder, _INDEX, **given)
        if index is not None:
            return list(get_checkpoint_shard_files(folder, index, revision=revision)[0] or ())
        single = cached_file(folder, _SINGLE, **given)
    except (OSError, ValueError, KeyError) as error:
        raise LoadError(f"{folder} cannot be loaded: {error_line(error)}") from error
    if single is None:
        raise LoadError(
            f"{folder} has no {_SINGLE} and no {_INDEX}; offload maps safetensors into memory, so "
            "convert the weights, or leave out offload"
        )
    return [single]


def _stored(files: Iterable[str]) -> dict[str, Stored]:
    stored: dict[str, Stored] = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118
                    part = opened.get_slice(name)
                    kind = getattr(torch, _TYPES.get(part.get_dtype(), "uint8"))
                    stored[name] = Stored(file, kind, tuple(part.get_shape()))
        except (OSError, SafetensorError) as error:
            raise LoadError(
                f"{file} is damaged or cut short ({error}); download or copy it again"
            ) from error
    return stored


_TYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "BOOL": "bool",
}


def _plan(module: Any, folder: str, stored: Mapping[str, Stored]) -> tuple[Checkpoint, list[str]]:
    """Find which checkpoint tensors give which tensors of a module, and which give none."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        dot_natural_key,
        rename_source_key,
    )

    rules = get_model_conversion_mapping(module)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    by_pattern = {pattern: rule for rule in converters for pattern in rule.source_patterns}
    saved, prefix = dict(saved_tensors(module)), module.base_model_prefix
    sources: dict[str, list[tuple[str, str]]] = {}
    how: dict[str, Any] = {}
    unexpected: list[str] = []
    for name in sorted(stored, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters, prefix, saved)
        if target not in saved and name in saved:
            target, pattern = rename_source_key(name, [], [], prefix, saved)
        if target not in saved:
            unexpected.append(target)
            continue
        sources.setdefault(target, []).append((name, pattern or name))
        how.setdefault(target, None if pattern is None else by_pattern[pattern])
    made_by: dict[str, Recipe] = {}
    for target, given in sources.items():
        recipe = Recipe(target, how[target], tuple(given))
        empty = {
            n: torch.empty(stored[n].shape, dtype=stored[n].dtype, device="meta") for n, _ in given
        }
        try:
            shapes = recipe.convert(empty, module)
        except (RuntimeError, NotImplementedError, ValueError, TypeError, KeyError) as error:
            raise LoadError(
                f"{folder}: {target} is stored in another form, which is converted only on "
                f"loading as a whole ({error_line(error)}); leave out offload"
            ) from error
        made_by |= dict.fromkeys(shapes, recipe)
    ignored = module._keys_to_ignore_on_load_unexpected or ()
    unexpected = [n for n in unexpected if not any(re.search(p, n) for p in ignored)]
    return Checkpoint(folder, stored, made_by), unexpected


def _saved(module: nn.Module) -> list[str]:
    """Return the names of parameters and saved buffers, tied ones once."""
    buffers = [name for name, _ in saved_tensors(module) if name not in _parameters(module)]
    return [*dict(module.named_parameters()), *buffers]


def _parameters(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_parameters(remove_duplicate=False)}


def _names(module: nn.Module) -> dict[str, list[str]]:
    """Return all names of each parameter, by the first."""
    first: dict[int, str] = {}
    names: dict[str, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(first.setdefault(id(parameter), name), []).append(name)
    return names


def _compare(
    module: Any, checkpoint: Checkpoint, saved: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the tensors that the checkpoint lacks, and those that have another shape in it."""
    made_by, names = checkpoint.made_by, _names(module)
    for first, all_of_it in names.items():  # a tied tensor may be stored under any of its names
        there = next((name for name in all_of_it if name in made_by), None)
        if there is not None and first not in made_by:
            recipe = made_by[there]
            made_by[first] = Recipe(first, recipe.converter, recipe.sources)
    ignored = module._keys_to_ignore_on_load_missing or ()
    missing = [n for n in saved if n not in made_by and not any(re.search(p, n) for p in ignored)]
    tensors = dict(saved_tensors(module))
    wrong = []
    for name in saved:
        if name not in made_by:
            continue
        empty = {
            n: torch.empty(checkpoint.stored[n].shape, device="meta")
            for n, _ in made_by[name].sources
        }
        shape = made_by[name].convert(empty, module)[name].shape
        if shape != tensors[name].shape:
            wrong.append(
                f"{name}: {tuple(shape)} where the config has {tuple(tensors[name].shape)}"
            )
    return missing, wrong


def _require_ties(module: nn.Module, checkpoint: Checkpoint) -> None:
    """Raise LoadError if tensors that the config ties differ in the checkpoint."""
    for first, names in _names(module).items():
        there = [name for name in names if name in checkpoint.made_by]
        for other in there[1:]:
            if checkpoint.made_by[other].sources == checkpoint.made_by[first].sources:
                continue
            one, two = (checkpoint.read([n], module)[n] for n in (first, other))
            if not torch.equal(one, two):
                raise LoadError(
                    f"{checkpoint.folder}: the config ties {other} to {first}, and the checkpoint "
                    "holds different tensors for them; set tie_word_embeddings to false in "
                    "config.json, or leave out offload"
                )


def _computed(module: nn.Module, names: Iterable[str]) -> dict[str, Tensor]:
    """Return parameters that the class computes and does not save, such as tables of positions."""
    calls = dict(initialising_calls(module))
    parameters: dict[str, Tensor] = {}
    for name in names:
        path, _, last = name.rpartition(".")
        holder = module.get_submodule(path)
        value = torch.empty_like(holder.get_parameter(last), device="cpu")
        holder._parameters[last] = nn.Parameter(value, requires_grad=False)
        with drawn_with(None), torch.no_grad():
            calls[path]()
        parameters[name] = value
    return parameters


def _read_buffers(
    module: nn.Module, checkpoint: Checkpoint, saved: Iterable[str], device: torch.device
) -> None:
    parameters = _parameters(module)
    for name in saved:
        if name in checkpoint.made_by and name not in parameters:
            path, _, last = name.rpartition(".")
            holder = module.get_submodule(path)
            buffer = holder._buffers[last]
            value = checkpoint.read([name], module)[name]
            holder._buffers[last] = value.clone().to(
                device, None if buffer is None else buffer.dtype
            )


def _dtype(name: str, own: torch.dtype, plan: Mapping[str, torch.dtype]) -> torch.dtype:
    """Return the type of a parameter: some classes keep the named ones in float32."""
    from transformers.core_model_loading import build_glob_alternation

    if not plan:
        return own
    pattern, groups, _ = build_glob_alternation(list(plan))
    match = pattern.search(name)
    return own if match is None or match.lastgroup is None else plan[groups[match.lastgroup]]


def _require_room(
    folder: str,
    parts: Iterable[WeightPart],
    module: nn.Module,
    like: Mapping[str, tuple[torch.dtype, torch.device]],
) -> None:
    """Raise LoadError if the largest part does not fit in the memory that is free."""
    numbers = {name: p.numel() for name, p in module.named_parameters()}
    sizes = {
        part.name: sum(numbers[n] * like[n][0].itemsize for n in part.parameters) for part in parts
    }
    largest = max(sizes, key=lambda name: sizes[name])
    free = available_bytes()
    if free is not None and sizes[largest] > free:
        raise LoadError(
            f"{folder}: its largest part ({largest}) takes {sizes[largest] / 2**30:.1f} GiB and "
            f"{free / 2**30:.1f} GiB are free; use a smaller dtype or a machine with more memory"
        )
