"""Content of a model: hash, faster checksum, and provenance of results."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch import Tensor, nn
from torch import uint8 as byte
from torch.distributed.tensor import DTensor
from xxhash import xxh3_128_digest

from interp import __version__
from interp.model.locate.sites import skipped_layers

if TYPE_CHECKING:
    from interp.core.prompts import Prompts
    from interp.core.protocols import IdentifiedModel


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


def _tensors(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield saved tensors of a module by name; quantised weights as their integers and scales."""
    todo = sorted(module.state_dict().items(), reverse=True)
    while todo:
        name, x = todo.pop()
        if isinstance(x, (tuple, list)):
            todo += [(f"{name}.{i}", part) for i, part in reversed(list(enumerate(x)))]
        elif not isinstance(x, Tensor):
            told = repr(x).encode()
            yield name, torch.frombuffer(bytearray(told or b" "), dtype=byte)
        elif x.is_quantized:
            told = f"{x.qscheme()} {x.dtype}"
            scales: tuple = (x.q_scale(), x.q_zero_point()) if "tensor" in told else (
                x.q_per_channel_scales(), x.q_per_channel_zero_points(), x.q_per_channel_axis()
            )  # fmt: skip
            todo.append((name, [x.int_repr(), told, *scales]))
        else:
            yield name, whole_parameter(x).detach()


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
        digest.update(x.detach().cpu().contiguous().numpy().tobytes())
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
    )


def result_provenance(
    model: IdentifiedModel,
    made_by: str,
    prompts: Prompts | None = None,
    *,
    seed: int | None = None,
    engine: str = "stored",
    **options: Any,
) -> dict[str, Any]:
    """Return the provenance of a result: model, prompts, options, seed, engine and versions.

    Args:
        model: the model.
        made_by: the public function, such as "interp.lens.logit_lens".
        prompts: the prompts; None where only weights were read.
        seed: the seed.
        engine: the engine that was used.
        **options: arguments that change the numbers.
    """
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
