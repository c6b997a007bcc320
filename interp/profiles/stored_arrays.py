"""Results of steps as the bytes of one file, without pickles."""

from __future__ import annotations

import io
from typing import Any, Self

import numpy as np
import torch


class StoredArrays:
    """Base of dataclasses of arrays, tensors, and lists of these that are not empty."""

    def to_bytes(self) -> bytes:
        """Return all fields as the bytes of one file; booleans take a bit each."""
        parts = {}
        for name, value in vars(self).items():
            listed = isinstance(value, list)
            for at, x in enumerate(value if listed else [value]):
                kind = "tensor" if isinstance(x, torch.Tensor) else "array"
                array = np.asarray(x)
                shape = ",".join(map(str, array.shape)) if array.dtype == bool else ""
                key = f"{name}|{at if listed else ''}|{kind}|{shape}"
                parts[key] = np.packbits(array) if array.dtype == bool else array
        file = io.BytesIO()
        np.savez(file, **parts)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote."""
        values: dict[str, Any] = {}
        with np.load(io.BytesIO(content)) as file:
            for key in file.files:
                name, at, kind, stated = key.split("|")
                array = file[key]
                if stated:
                    shape = tuple(map(int, stated.split(",")))
                    bits = np.unpackbits(array, count=int(np.prod(shape)))
                    array = bits.reshape(shape).astype(bool)
                value = torch.from_numpy(array) if kind == "tensor" else array
                if at:
                    values.setdefault(name, []).append(value)
                else:
                    values[name] = value
        return cls(**values)
