"""Finished steps of a search for a circuit in a run store: plain data and arrays, to the last bit.

No value can run code when it is read back.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from interp.core.store import Store

StepKey = tuple[tuple[str, int], ...]
"""The steps that a step is in, each with its number among those of its name, and itself."""

EVERY = 1.0  # seconds between two writes: what a kill costs at most, beside the step at work


class Kept:
    """Values of finished steps, kept in a folder.

    Args:
        identity: all that moves the values; runs of another identity never get them.

    Raises:
        StoreError: the folder cannot be written, or is of an earlier version.
    """

    def __init__(self, folder: str | os.PathLike, identity: Mapping[str, Any]) -> None:
        weights = identity.get("model", {}).get("content_hash", "")
        self.steps = Store(folder).steps("steps", weights, identity)
        self._waiting: dict[StepKey, bytes] = {}
        self._written = time.monotonic()

    def find(self, key: StepKey) -> tuple[bool, Any]:
        """Whether a step is finished, and its value.

        Raises:
            StoreError: it cannot be read back.
        """
        name = _name(key)
        content = self._waiting.get(key) or self.steps.find([name]).get(name)
        return (False, None) if content is None else (True, step_from_json(content))

    def add(self, key: StepKey, value: Any) -> None:
        """Keep a finished step; on disk after `EVERY` seconds, or `flush`.

        What was finished inside it and still waits is dropped: nobody will ask for it.
        """
        for inside in [k for k in self._waiting if k[: len(key)] == key]:
            del self._waiting[inside]
        try:
            self._waiting[key] = step_as_json(value)
        except TypeError:
            return  # not plain data, such as an object of a method's own
        if time.monotonic() - self._written >= EVERY:
            self.flush()

    def flush(self) -> None:
        """Put what is finished on disk.

        Raises:
            StoreError: it cannot be written.
        """
        if self._waiting:
            self.steps.add({_name(key): value for key, value in self._waiting.items()})
        self._waiting = {}
        self._written = time.monotonic()


def _name(key: StepKey) -> str:
    return json.dumps(key)


def step_as_json(value: Any) -> bytes:
    """A value as JSON; raises TypeError for what is neither plain data nor an array."""
    return json.dumps(_plain(value)).encode()


def step_from_json(content: bytes) -> Any:
    """The value that `encoded` was given."""
    return _value(json.loads(content))


def _plain(x: Any) -> Any:
    """JSON for x; what JSON has no form for is a mapping of one entry that says what it is."""
    if isinstance(x, (np.ndarray, np.generic)):
        array = np.asarray(x)
        if array.dtype.kind not in "biufc":
            raise TypeError(f"no array of numbers: {array.dtype}")
        content = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        told = [array.dtype.str, list(array.shape), content]
        return {"scalar" if isinstance(x, np.generic) else "array": told}
    if x is None or type(x) in (bool, int, float, str):
        return x
    if type(x) is list:
        return [_plain(y) for y in x]
    if type(x) is tuple:
        return {"tuple": [_plain(y) for y in x]}
    if type(x) is dict:
        return {"dict": [[_plain(k), _plain(v)] for k, v in x.items()]}
    raise TypeError(f"no plain data: {type(x).__name__}")


def _value(told: Any) -> Any:
    """What `told` stands for."""
    if isinstance(told, list):
        return [_value(x) for x in told]
    if not isinstance(told, dict):
        return told
    ((kind, inside),) = told.items()
    if kind == "tuple":
        return tuple(_value(x) for x in inside)
    if kind == "dict":
        return {_value(k): _value(v) for k, v in inside}
    code, shape, content = inside
    found = np.frombuffer(base64.b64decode(content), np.dtype(code)).reshape(shape).copy()
    return found[()] if kind == "scalar" else found
