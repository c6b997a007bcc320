"""Content of a model: hash, faster checksum, and provenance of results."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor, nn
from torch import uint8 as byte
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from xxhash import xxh3_128_digest

from interp import __version__
from interp.model.calls.sites import skipped_layers
from interp.model.streamed import streamed_weights

if TYPE_CHECKING:
    from interp.core.prompts import Prompts
    from interp.core.protocols import IdentifiedModel


ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_ROW = 4096  # words of 8 bytes that are reduced to two sums
_held: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


def whole_parameter(x: Tensor) -> Tensor:
    """Gather a parameter whose parts are spread over processes."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def content_hash(module: nn.Module) -> str:
    """Return the sha256 of all saved parameters and buffers: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, x in _tensors(module):
        digest.update(f"{name} {x.dtype} {tuple(x.shape)};".encode())
        digest.update(_bytes(x))
    return digest.hexdigest()


def checksum(module: nn.Module) -> str:
    """Compute a checksum that changes with any byte of the weights, in one pass over them.

    The version counters of torch do not suffice: writing through `.data` does not change them.
    """
    if (streamed := streamed_weights(module)) is not None:
        return streamed.identity
    if module not in _held:
        return checksum_of(_tensors(module))
    if not _held[module]:
        _held[module] = checksum_of(_tensors(module))
    return _held[module]


def hold(module: nn.Module) -> Callable[[], object]:
    """Compute the checksum of a module once and reuse it until the returned function is called.

    For a command that loaded the model itself, where no other code can change its weights.
    """
    _held[module] = ""
    there = ref(module)
    return lambda: None if (held := there()) is None else _held.pop(held, None)


def checksum_of(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Compute the checksum of named tensors."""
    digest = hashlib.blake2b()
    named = list(tensors)
    once = {_place(x): x for _, x in named}  # tied weights are read once
    reduced = {place: _reduced(x) for place, x in once.items()}
    for name, x in named:
        digest.update(f"{name} {x.dtype} {tuple(x.shape)};".encode())
        digest.update(reduced[_place(x)])
    return digest.hexdigest()


def _place(x: Tensor) -> tuple:
    return x.device, x.data_ptr(), x.dtype, x.shape, x.stride()


def same_tensors(mine: nn.Module, other: nn.Module) -> bool:
    """Return True if a module has exactly the saved tensors of another, in its own data type."""
    have, wanted = dict(saved_tensors(mine)), dict(saved_tensors(other))
    return have.keys() == wanted.keys() and all(
        have[k].shape == wanted[k].shape and torch.equal(have[k].cpu(), wanted[k].to(have[k].dtype))
        for k in wanted
    )


def saved_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and saved buffers by name, as they are.

    `state_dict` gives the same names, and is never called on a caller's module: packed weights of
    bitsandbytes are unpacked by it, in place, to other numbers.
    """
    for name, part, table in _saved(module):
        yield name, getattr(part, table)[name.rpartition(".")[2]]


def _saved(module: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Yield names of parameters and saved buffers, with the submodule and its table."""
    for path, part in module.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for key, x in part._parameters.items():
            if x is not None and key not in part._buffers:
                yield f"{prefix}{key}", part, "_parameters"
        for key, x in part._buffers.items():
            if x is not None and key not in part._non_persistent_buffers_set:
                yield f"{prefix}{key}", part, "_buffers"


def unsaved_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield buffers that are computed and not saved, such as rotary frequencies, in order."""
    saved = {name for name, _, _ in _saved(module)}
    return ((name, x) for name, x in sorted(module.named_buffers()) if name not in saved)


def is_plain(x: Tensor) -> bool:
    """Return True for a tensor that holds its numbers itself (or those of other processes)."""
    return not x.is_quantized and (isinstance(x, DTensor) or not is_traceable_wrapper_subclass(x))


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the plain tensors of a module by name; packed weights with the scales they need."""
    for name, holder, table in sorted(_saved(module), key=lambda item: item[0]):
        x = getattr(holder, table)[name.rpartition(".")[2]]  # one at a time: it may be streamed
        for part, tensor in _plain_parts(x):
            yield f"{name}{part}", tensor
        if not x.is_floating_point() and isinstance(x, nn.Parameter):
            owner = module.get_submodule(name.rpartition(".")[0])
            # numbered: some packages move them from the tensor to its module at the first run
            for i, tensor in enumerate([*_scales(vars(x)), *_scales(vars(owner))]):
                yield f"{name}.scales.{i}", tensor


def plain_tensors(x: Tensor) -> Iterator[Tensor]:
    """Yield the tensors that hold the numbers of a tensor: itself, or the parts of a packed one."""
    return (part for _, part in _plain_parts(x))


def _plain_parts(x: Any) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(x, Tensor):
        stated = ADDRESS.sub("", repr(x)).encode()
        yield "", torch.frombuffer(bytearray(stated or b" "), dtype=byte)
    elif is_plain(x):
        yield "", whole_parameter(x).detach()
    else:
        for name, part in _inside(x):
            yield from ((f".{name}{rest}", tensor) for rest, tensor in _plain_parts(part))


def _inside(x: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a packed tensor: integers, scales, and a description."""
    if x.is_quantized:
        text = f"{x.qscheme()} {x.dtype}"
        scales: tuple = (
            (x.q_scale(), x.q_zero_point())
            if "tensor" in text
            else (x.q_per_channel_scales(), x.q_per_channel_zero_points(), x.q_per_channel_axis())
        )
        yield from ((str(i), part) for i, part in enumerate((x.int_repr(), text, *scales)))
    else:
        names, about = x.__tensor_flatten__()
        yield from ((name, getattr(x, name)) for name in names)
        yield "about", about


def _scales(holder: Mapping[str, Any], depth: int = 4) -> Iterator[Tensor]:
    """Yield the floating tensors among attributes, and in the objects and mappings they hold.

    Integers mean nothing without them. Integer tensors among the attributes are the weights again,
    or columns of the last input.
    """
    for name in sorted(holder.keys() - _MODULE_TABLES, key=str):
        x = holder[name]
        if isinstance(x, Tensor):
            yield from plain_tensors(x) if x.is_floating_point() else ()
        elif isinstance(x, Mapping) and depth:
            yield from _scales(x, depth - 1)
        elif depth and hasattr(x, "__dict__") and not isinstance(x, (type, nn.Module)):
            yield from _scales(vars(x), depth - 1) if not callable(x) else ()


_MODULE_TABLES = frozenset(vars(nn.Module()))  # parameters, buffers, hooks


def _bytes(x: Tensor) -> Any:
    return x.cpu().contiguous().reshape(-1).view(byte).numpy()


def _reduced(x: Tensor) -> bytes:
    """Reduce a tensor to a few bytes, where it lies: XXH3 on the host, sums on other devices."""
    flat = x.contiguous().reshape(-1).view(byte)
    return xxh3_128_digest(flat.numpy().data) if _on_host(x) else _sums(flat)


def _on_host(x: Tensor) -> bool:
    return x.device.type == "cpu"


def _sums(flat: Tensor) -> bytes:
    """Reduce every 32 KiB to two sums; a change of any byte changes at least one of them.

    Each sum is over 64-bit words times odd random numbers, modulo 2**64. Changes of the highest
    bits of two words would cancel in the first sum, so the second one is over the upper halves of
    the words.
    """
    n = len(flat) // (8 * _ROW)
    if n and flat.storage_offset() % 8:
        flat = flat.clone()  # 64-bit words are not aligned there
    words, rest = flat[: n * 8 * _ROW].view(torch.int64).view(n, _ROW), flat[n * 8 * _ROW :]
    weights = torch.from_numpy(_weights()).to(words.device)
    parts = [
        torch.stack([(w * weights[0]).sum(1), ((w >> 32) * weights[1]).sum(1)], 1)
        for w in words.split(1 << 10)
    ]
    sums = torch.cat([*parts, words.new_empty(0, 2)])
    return sums.cpu().numpy().tobytes() + rest.cpu().numpy().tobytes()


@cache
def _weights() -> np.ndarray:
    full = np.iinfo(np.int64)
    return np.random.default_rng(0).integers(full.min, full.max, (2, _ROW)) | 1


def tensors_hash(inputs: Mapping[str, Tensor]) -> str:
    """Return the sha256 of named tensors, such as given inputs."""
    digest = hashlib.sha256()
    for name, x in sorted(inputs.items()):
        digest.update(name.encode())
        plain = x.detach().cpu().flatten()  # as bytes: numpy has no bfloat16
        digest.update(plain.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def maps_of(model: Any) -> dict[str, str]:
    """Return, by name, the layers whose heads are not one softmax, with what their patterns are."""
    return {
        site.name: f"{site.kind}; {site.about}; statistics of absolute shares |M| / sum |M|"
        for site in model.sites
        if site.kind != "softmax"
    }


def model_provenance(model: IdentifiedModel) -> dict[str, Any]:
    """Return provenance of a model and of the versions that ran it."""
    unused = {"unused_tensors": list(model.unused)} if model.unused else {}
    maps = maps_of(model)
    beside = getattr(model, "left_out", ())
    return (
        unused
        | ({"maps": maps} if maps else {})
        | ({"skipped": skipped_layers(beside)} if beside else {})
        | {
            "model_id": model.name,
            "revision": model.revision,
            "content_hash": model.content_hash,
            "dtype": str(model.dtype).removeprefix("torch."),
            "attention": model.attention,
            "source": model.source,
            "versions": versions(),
        }
        | _kernels_on_card(model)
    )


def _kernels_on_card(model: Any) -> dict[str, str]:
    """Return what is known of the Triton kernels on the model's card; nothing on other devices."""
    if getattr(model.device, "type", "cpu") != "cuda":
        return {}
    from interp_kernels.verdicts import Width, card_of, why_untrusted

    widths = {Width(s.n_heads, s.n_kv_heads, s.d_head, s.d_v, model.dtype) for s in model.sites}
    why = {reason for width in widths if (reason := why_untrusted(model.device, width))}
    compared = f"the Triton kernels passed their comparison on this card ({card_of(model.device)})"
    return {"kernels": "; ".join(sorted(why)) or compared}


def result_provenance(
    model: IdentifiedModel,
    made_by: str,
    prompts: Prompts | None = None,
    *,
    seed: int | None = None,
    engine: str = "stored",
    **options: Any,
) -> dict[str, Any]:
    """Return the provenance of a result: model, prompts, options, seed, engine and versions."""
    about: dict[str, Any] = {"prompts": "none: weights only", "engine": "weights"}
    if prompts is not None:
        about = {"prompts": prompts.design, "prompts_hash": prompts.hash}
        about |= {"n_prompts": len(prompts), "engine": engine}
    about |= {"options": options, "seed": seed, "made_by": made_by}
    return model_provenance(model) | about


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute results."""
    import torch
    import transformers

    return {
        "interp": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
