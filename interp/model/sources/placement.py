"""Placement of a large model on one host: layers over devices, or heads over processes."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from torch import nn

from interp.core.errors import LoadError, UnreadableAttention


def placement(
    *,
    device: Any,
    device_map: str | dict | None,
    tp_plan: str | dict | None,
    offload: bool | None = None,
) -> dict[str, Any]:
    """Return the options of `from_pretrained` for the requested placement."""
    given = {"device": device, "device_map": device_map, "tp_plan": tp_plan}
    asked = [name for name, value in given.items() if value is not None]
    if offload and asked != ["device"]:
        asked += ["offload"]
    if len(asked) > 1:
        raise LoadError(f"{' and '.join(asked)} are different ways to place a model; give one")
    if device_map is not None and find_spec("accelerate") is None:
        raise LoadError(
            "device_map needs the package accelerate; install it: pip install accelerate"
        )
    if tp_plan is not None and int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise LoadError(
            "tp_plan spreads heads over processes, and this is one; start it with "
            "torchrun --nproc-per-node N"
        )
    if offload:
        return {"device": device}
    return {k: v for k, v in given.items() if v is not None and k != "device"}


def require_one_device(module: nn.Module, name: str, what: str) -> None:
    """Raise UnreadableAttention for layers on several devices, in what adds activations of all."""
    devices = sorted({str(p.device) for p in module.parameters()})
    if len(devices) > 1:
        raise UnreadableAttention(
            f"{name}: its layers lie on {' and '.join(devices)}, and {what} adds up what all of "
            "them write; load the model on one device (device=), or with offload=True (--offload)"
        )


def require_here(module: nn.Module, name: str) -> None:
    """Raise LoadError for parameters that stay on disk until they are used."""
    away = [n for n, p in module.named_parameters() if p.device.type == "meta"]
    if away:
        raise LoadError(
            f"{name}: {len(away)} tensors stay on the disk or beside the device ({away[0]}), where "
            "they cannot be read; load the model without offloading (device_map), or with "
            "offload=True (--offload), which reads them"
        )
