"""Stored steps of a search for a circuit: plain data and arrays, kept bit for bit in a run store.

No value can execute code when it is read back.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from interp.core.documents import parse_json
from interp.core.store import Store

StepKey = tuple[tuple[str, int], ...]
"""Path to a step through the steps it is in, each with its number among those of its name."""

EVERY = 1.0  # seconds between two writes: the most that a kill loses, besides the current step


class Kept:
    """Values of finished steps, stored in a folder.

    Args:
        folder: The folder.
        identity: Everything that the values depend on; runs with another identity never get them.

    Raises:
        StoreError: The folder cannot be written, or is of another version.
    """

    def __init__(self, folder: str | os.PathLike, identity: Mapping[str, Any]) -> None:
        weights = identity.get("model", {}).get("content_hash", "")
        self.steps = Store(folder).steps("steps", weights, identity)
        self._waiting: dict[StepKey, bytes] = {}
        self._written = time.monotonic()

    def find(self, key: StepKey) -> tuple[bool, Any]:
        """Return whether a step is finished, and its value."""
        name = _name(key)
        content = self._waiting.get(key) or self.steps.find([name]).get(name)
        return (False, None) if content is None else (True, step_from_json(content))

    def add(self, key: StepKey, value: Any) -> None:
        """Store a finished step; it is written to disk after `EVERY` seconds, or by `flush`.

        Steps inside it that are not yet written are dropped: they will not be needed.
        """
        for inside in [k for k in self._waiting if k[: len(key)] == key]:
            del self._waiting[inside]
        try:
            self._waiting[key] = step_as_json(value)
        except TypeError:
            return  # not plain data, such as an object of a custom class
        if time.monotonic() - self._written >= EVERY:
            self.flush()

    def flush(self) -> None:
        """Write the finished steps to disk."""
        if self._waiting:
            self.steps.add({_name(key): value for key, value in self._waiting.items()})
        self._waiting = {}
        self._written = time.monotonic()


def _name(key: StepKey) -> str:
    return json.dumps(key)


def step_as_json(value: Any) -> bytes:
    """Encode a value as JSON."""
    return json.dumps(_plain(value)).encode()


def step_from_json(content: bytes) -> Any:
    """Return the value that `step_as_json` was given."""
    return _value(parse_json(content))


def _plain(x: Any) -> Any:
    """Convert to JSON types; other types become a mapping of one entry whose key names the type."""
    if isinstance(x, (np.ndarray, np.generic)):
        array = np.asarray(x)
        if array.dtype.kind not in "biufc":
            raise TypeError(f"an array of {array.dtype} is not an array of numbers")
        content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        lines = [array.dtype.str, list(array.shape), content]
        return {"scalar" if isinstance(x, np.generic) else "array": lines}
    if x is None or type(x) in (bool, int, float, str):
        return x
    if type(x) is list:
        return [_plain(y) for y in x]
    if type(x) is tuple:
        return {"tuple": [_plain(y) for y in x]}
    if type(x) is dict:
        return {"dict": [[_plain(k), _plain(v)] for k, v in x.items()]}
    raise TypeError(f"{type(x).__name__} is not plain data")


def _value(stated: Any) -> Any:
    """Convert the output of `_plain` back to the value."""
    if isinstance(stated, list):
        return [_value(x) for x in stated]
    if not isinstance(stated, dict):
        return stated
    ((kind, inside),) = stated.items()
    if kind == "tuple":
        return tuple(_value(x) for x in inside)
    if kind == "dict":
        return {_value(k): _value(v) for k, v in inside}
    code, shape, content = inside
    array = np.frombuffer(base64.b64decode(content), np.dtype(code)).reshape(shape).copy()
    return array[()] if kind == "scalar" else array
