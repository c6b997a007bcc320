"""Lossless encoding of result values as plain JSON data.

Decoding creates only instances of types that a result class lists; it executes no code of the file.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interp.core.head import Head


def as_json_data(value: Any) -> Any:
    """Turn a value into JSON data that `decoded` turns back."""
    if hasattr(value, "detach"):  # a tensor, recognised without importing torch
        return _array(value.detach().cpu().numpy()) | {"kind": "tensor"}
    if hasattr(value, "dtype"):
        return as_json_data(value.item()) if value.ndim == 0 else _array(value)
    if isinstance(value, (Mapping, list, tuple, frozenset)):
        return _collection(value)
    if hasattr(value, "of_json"):  # a table of heads
        return {"type": type(value).__name__, "json": value.to_json()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__, "fields": _fields(value)}
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a {type(value).__name__} cannot be written to a file")


def _collection(value: Any) -> Any:
    if isinstance(value, Head):
        return {"head": [value.layer, value.head, value.stack]}
    if isinstance(value, Mapping):
        return {"mapping": [[as_json_data(k), as_json_data(v)] for k, v in value.items()]}
    if isinstance(value, frozenset):
        return {"frozenset": [as_json_data(x) for x in sorted(value)]}
    items = [as_json_data(x) for x in value]
    if isinstance(value, list):
        return items
    return {type(value).__name__ if hasattr(value, "_fields") else "tuple": items}


def _fields(value: Any) -> dict[str, Any]:
    values = {
        f.name: as_json_data(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init
    }
    rows = getattr(value, "_kept", None)
    return values if rows is None else values | {"_kept": list(rows)}


def _array(x: Any) -> dict[str, Any]:
    data = base64.b64encode(x.tobytes()).decode()
    return {"array": x.dtype.str, "shape": list(x.shape), "data": data}


def decoded(value: Any, known: Sequence[type]) -> Any:
    """Turn the data that `as_json_data` returned back into values."""
    if not isinstance(value, dict):
        return [decoded(x, known) for x in value] if isinstance(value, list) else value
    if "array" in value:
        return _decoded_array(value)
    types: dict[str, Any] = {each.__name__: each for each in known}
    if "type" in value:
        of = types[value["type"]]
        return of.of_json(value["json"]) if "json" in value else remade(of, value["fields"], known)
    ((tag, inside),) = value.items()
    if tag == "mapping":
        return {decoded(k, known): decoded(v, known) for k, v in inside}
    if tag in _OF_ONE:
        return _OF_ONE[tag](inside)
    items = [decoded(x, known) for x in inside]
    plain: dict[str, Any] = {"tuple": tuple, "frozenset": frozenset}
    return plain[tag](items) if tag in plain else types[tag](*items)


_OF_ONE = {"float": float, "head": lambda x: Head(*x), "range": lambda x: range(*x)}


def remade(cls: Any, fields: Mapping[str, Any], known: Sequence[type]) -> Any:
    """Recreate a dataclass from its encoded fields."""
    values = {name: decoded(x, known) for name, x in fields.items() if name != "_kept"}
    instance = cls(**values)
    if "_kept" in fields:
        object.__setattr__(instance, "_kept", list(fields["_kept"]))
    return instance


def _decoded_array(value: Mapping[str, Any]) -> Any:
    import numpy as np

    data = np.frombuffer(base64.b64decode(value["data"]), dtype=value["array"])
    array = data.reshape(value["shape"]).copy()
    if value.get("kind") != "tensor":
        return array
    import torch

    return torch.from_numpy(array)
