"""Layout of a folder of recorded activations: the index, its shards, and their checksums.

The folder holds `index.json` and one safetensors file per shard. A shard contains the tokens of a
run of whole prompts (`tokens`), where each prompt begins (`offsets`), and one tensor per
activation, stack and layer, named such as `z.decoder.3`, whose first axis counts the tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from interp.core.errors import StoreError
from interp.core.files import read_bytes, write_atomically
from interp.core.json_document import json_document, stored_document

INDEX = "index.json"
FORMAT = "interp activations 1"
_BLOCK = 1 << 20  # bytes that are read at once


@dataclass(frozen=True)
class RecordedShard:
    """Entry of one shard in the index."""

    file: str
    first_prompt: int
    n_prompts: int
    n_tokens: int
    n_bytes: int
    sha256: str  # of the file
    prompts_sha256: str  # of the token ids, for the comparison with a corpus


@dataclass
class RecordingIndex:
    """Contents of `index.json`.

    `request` is what decides the recorded values: the model's hash, the names, layers, heads, data
    type and batches. A recording continues only when all of it is the same.
    """

    request: dict[str, Any]
    provenance: dict[str, Any]
    shapes: dict[str, list[int]] = field(default_factory=dict)  # of one token
    shards: list[RecordedShard] = field(default_factory=list)
    complete: bool = False

    def write(self, folder: Path) -> None:
        """Write the index atomically; StoreError when the folder or disk refuses."""
        write_atomically(folder / INDEX, json_document({"format": FORMAT} | asdict(self), 1))

    @property
    def n_prompts(self) -> int:
        """Number of recorded prompts."""
        return sum(shard.n_prompts for shard in self.shards)

    @property
    def n_tokens(self) -> int:
        """Number of recorded tokens."""
        return sum(shard.n_tokens for shard in self.shards)


def read_index(folder: Path) -> RecordingIndex:
    """Read and check the index of a folder."""
    path = folder / INDEX
    if not path.exists():
        raise StoreError(
            f"{folder} holds no recorded activations ({INDEX} is missing); record some with "
            "`interp record`"
        )
    try:
        whole = stored_document(read_bytes(path))
        if not isinstance(whole, dict) or whole.pop("format", None) != FORMAT:
            raise ValueError(f"its 'format' is not '{FORMAT}'")
        known = {f.name for f in fields(RecordingIndex)}
        if set(whole) != known:
            raise ValueError(f"its entries are {', '.join(sorted(whole))}")
        index = RecordingIndex(**whole)
        index.shards = [RecordedShard(**shard) for shard in whole["shards"]]
        _require_order(index.shards)
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"{path} is damaged or of another version ({error}); record into another folder, or "
            "remove this one"
        ) from error
    return index


def _require_order(shards: Sequence[RecordedShard]) -> None:
    at = 0
    for shard in shards:
        if shard.first_prompt != at or shard.n_prompts < 1:
            raise ValueError(f"{shard.file} begins at prompt {shard.first_prompt}, not at {at}")
        if Path(shard.file).name != shard.file:
            raise ValueError(f"the shard {shard.file!r} lies outside the folder")
        at += shard.n_prompts


def shard_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"activations-{number:05d}.safetensors"


def tensor_name(name: str, stack: str, layer: int) -> str:
    """Return the name of one activation's tensor inside a shard."""
    return f"{name}.{stack}.{layer}"


def prompts_sha256(prompts: Iterable[Sequence[int]]) -> str:
    """Compute the checksum of token ids, prompt by prompt."""
    digest = hashlib.sha256()
    for ids in prompts:
        digest.update(f"{' '.join(map(str, ids))}\n".encode())
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Compute the checksum of a file, a block at a time; StoreError when it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    return digest.hexdigest()


def fault(folder: Path, shard: RecordedShard, *, checksum: bool = True) -> str | None:
    """Return what is wrong with a shard's file, or None."""
    path = folder / shard.file
    if not path.exists():
        return f"{shard.file} is missing"
    size = path.stat().st_size
    if size != shard.n_bytes:
        return f"{shard.file} has {size:,} bytes; the index states {shard.n_bytes:,}"
    if checksum and file_sha256(path) != shard.sha256:
        return f"{shard.file} has another checksum than the index states"
    return None


def differing(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """Describe every entry in which two requests differ."""
    return [
        f"{name}: {recorded.get(name)!r} there, {asked.get(name)!r} now"
        for name in dict.fromkeys([*recorded, *asked])
        if recorded.get(name) != asked.get(name)
    ]
