"""What a model's weights are, as a hash, and whether they may have changed since it was taken."""

from __future__ import annotations

import hashlib
from typing import Any

from torch import Tensor, nn
from torch import uint8 as byte

from interp.model.ranks import whole

SAMPLE = 4096  # entries of each tensor that are looked at again


def content_hash(module: nn.Module) -> str:
    """sha256 of every parameter and buffer that is saved: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, part in sorted(module.state_dict().items()):
        x: Any = whole(part)
        digest.update(f"{name} {x.dtype} {tuple(x.shape)};".encode())
        digest.update(_bytes(x))
    return digest.hexdigest()


def glance(module: nn.Module) -> str:
    """Changes with the weights, at a hundredth of a hash's price.

    torch counts changes in place, but not those made through `.data`; of these it sees what touches
    the sampled entries, as a head, a row or a layer does and a single entry may not.
    """
    digest = hashlib.blake2b()
    for name, x in sorted(module.state_dict().items()):
        version = 0 if x.is_inference() else x._version
        digest.update(f"{name} {x.dtype} {tuple(x.shape)} {x.data_ptr()} {version};".encode())
        step = max(1, x.numel() // SAMPLE) | 1  # odd: entries of all columns
        digest.update(_bytes(x.reshape(-1)[::step]))
    return digest.hexdigest()


def _bytes(x: Tensor) -> Any:
    return x.detach().cpu().contiguous().reshape(-1).view(byte).numpy()
