"""Verdicts on compiled kernels, one file per card: which widths were compared there, and passed.

A kernel that was never compared with the definition on a card, or failed, is not chosen by "auto"
there. A verdict holds for the versions of torch, Triton and these kernels with which it was made.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from interp_kernels.folders import cache_folder

if TYPE_CHECKING:
    from interp_kernels.problem import Attention
    from interp_kernels.self_test import SelfTest

KERNELS = ("gpu.py", "gpu_columns.py", "gpu_forward.py", "gpu_tiles.py")
"""Files whose change makes every verdict void."""


@dataclass(frozen=True)
class Width:
    """Sizes and dtype of a layer's attention, which decide what is compiled for it."""

    head: int
    kv_head: int
    d: int
    d_v: int
    dtype: torch.dtype

    @classmethod
    def of(cls, attention: Attention) -> Width:
        """Return those of a call."""
        at = attention.shape
        return cls(at.head, at.kv_head, at.d, at.d_v, attention.q.dtype)

    def text(self) -> str:
        """Return it in words."""
        kind = str(self.dtype).removeprefix("torch.")
        return f"{self.head} heads, {self.kv_head} of keys, {self.d} and {self.d_v} wide, {kind}"


def verdict_folder() -> Path:
    """Return the user's folder of verdicts."""
    return cache_folder("kernels")


def card_of(device: torch.device) -> str:
    """Return the name of a card and its compute capability; the type of other devices."""
    if device.type != "cuda":
        return device.type
    major, minor = torch.cuda.get_device_capability(device)
    return f"{torch.cuda.get_device_name(device)}, capability {major}.{minor}"


def versions(device: torch.device) -> dict[str, str]:
    """Return the card and the versions for which a verdict holds."""
    digest = hashlib.sha256()
    for name in KERNELS:
        digest.update(Path(__file__).with_name(name).read_bytes())
    known = importlib.util.find_spec("triton") is not None
    return {
        "card": card_of(device),
        "torch": torch.__version__,
        "triton": importlib.metadata.version("triton") if known else "",
        "kernels": digest.hexdigest()[:16],
    }


def keep(found: SelfTest) -> Path:
    """Keep the verdict on the Triton kernels for one width; the file is written whole.

    Raises:
        OSError: the folder cannot be written.
    """
    about = versions(torch.device(found.device))
    path, kept = _file(about), _read(about)
    kept[_key(found.width)] = found.passed("triton")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**about, "passed": kept}, indent=1)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as file:
        file.write(text)
    os.replace(file.name, path)
    _kept.cache_clear()
    return path


def why_untrusted(device: torch.device, width: Width) -> str | None:
    """Explain why "auto" does not use the Triton kernels for a width on a card, or return None."""
    passed = _kept(device).get(_key(width))
    if passed:
        return None
    what = "failed their comparison with the definition" if passed is False else "were not compared"
    return (
        f"the Triton kernels {what} on this card ({card_of(device)}) for {width.text()}; "
        "`interp check MODEL --device cuda` compares them"
    )


@lru_cache(maxsize=8)
def _kept(device: torch.device) -> Mapping[str, bool]:
    return _read(versions(device))


def _read(about: Mapping[str, str]) -> dict[str, bool]:
    """Return the kept verdicts; none if the file, named by `about`, is absent or damaged."""
    try:
        found: Any = json.loads(_file(about).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    passed = found.get("passed") if isinstance(found, dict) else None
    if not isinstance(passed, dict):
        return {}
    return {str(k): v for k, v in passed.items() if isinstance(v, bool)}


def _file(about: Mapping[str, str]) -> Path:
    name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]
    return verdict_folder() / f"{name}.json"


def _key(width: Width) -> str:
    """Return what is compiled anew: widths, dtype, and whether heads share keys."""
    shared = "shared" if width.head > width.kv_head else "own"
    return f"{width.d} {width.d_v} {str(width.dtype).removeprefix('torch.')} {shared}"
