"""Recording of activations of a corpus into shards on disk, in bounded memory and resumable."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.core.errors import NonFiniteError, OptionError, PromptError, StoreError
from interp.core.files import cannot_write, clear_abandoned, require_writable, write_atomically
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.text_file import iter_lines
from interp.model.activation_names import NAMES
from interp.model.capture_request import requested
from interp.model.content import result_provenance
from interp.model.model import Model
from interp.model.model_argument import takes_model
from interp.model.recorded.layout import (
    INDEX,
    RecordedShard,
    RecordingIndex,
    differing,
    fault,
    prompts_sha256,
    read_index,
    shard_name,
    tensor_name,
)
from interp.model.recorded.reading import RecordedActivations

Corpus = Path | Prompts | Tensor | Iterable[Any]
"""A text file with one prompt per line, prompts, or any iterable of texts or lists of token ids."""


def corpus_ids(corpus: Corpus, model: Model, max_length: int | None) -> Iterator[tuple[int, ...]]:
    """Yield the token ids of a corpus, prompt by prompt."""
    items = _lines(corpus) if isinstance(corpus, Path) else iter(_items(corpus))
    for number, item in enumerate(items):
        if isinstance(item, (int, np.integer)):
            raise PromptError(
                "the corpus is a list of token ids; give a list of such lists, one per prompt"
            )
        [whole] = Prompts.of([item], model).ids
        ids = whole[:max_length]
        try:
            Prompts((ids,)).check(model)
        except PromptError as error:
            raise PromptError(
                str(error)
                .replace("prompt 0", f"prompt {number}", 1)
                .replace("shorten it", "give max_length (--max-length) to cut long prompts")
            ) from error
        yield ids


def number_of_prompts(corpus: Corpus) -> int | None:
    """Return the number of prompts, or None where only reading the corpus would tell."""
    if isinstance(corpus, Path):
        return sum(1 for _ in _lines(corpus))
    return len(corpus) if hasattr(corpus, "__len__") else None  # type: ignore[arg-type]


def _items(corpus: Any) -> Iterable[Any]:
    if isinstance(corpus, Prompts):
        return corpus.ids
    if isinstance(corpus, str):
        raise PromptError(
            "the corpus is a single text; give a list of texts, or a pathlib.Path of a text file"
        )
    return corpus.tolist() if isinstance(corpus, Tensor) else corpus


def _lines(path: Path) -> Iterator[str]:
    return (line for line in iter_lines(path) if line.strip())


RECORDED = tuple(name for name in NAMES if name not in ("scores", "pattern", "map"))
"""Activations with one value per position; the others grow with the square of the length."""

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
SHARD_BYTES = 128 << 20

Tokens = tuple[int, ...]


@takes_model
def record_activations(
    model: Model,
    corpus: Corpus,
    folder: str | Path,
    names: Sequence[str] = ("z",),
    *,
    layers: int | Sequence[int] | None = None,
    stack: str | None = None,
    heads: int | Sequence[int] | None = None,
    max_length: int | None = None,
    dtype: str | None = None,
    batch_size: int = 8,
    shard_bytes: int = SHARD_BYTES,
    resume: bool = True,
    progress: Progress | None = None,
) -> RecordedActivations:
    """Run a corpus through a model and store activations of every token in a folder.

    Memory holds at most about three times `shard_bytes`, and one batch, whatever the size of the
    corpus. A run that was interrupted continues after the last finished shard and writes the same
    bytes as an uninterrupted one; a damaged shard is computed again.

    Args:
        model: the model.
        corpus: a `pathlib.Path` of a text file with one prompt per line, prompts, or any iterable
            of texts or lists of token ids, which is read once and never held as a whole.
        folder: folder to write; created if it does not exist.
        names: activations to record, any of `RECORDED`.
        layers: layers to record; all by default.
        stack: attention stack to record; all by default.
        heads: query heads to record; all by default.
        max_length: tokens to which longer prompts are cut.
        dtype: `float32`, `float16` or `bfloat16`; the model's own by default.
        batch_size: prompts that run together.
        shard_bytes: bytes of activations after which a shard is written.
        resume: continue a recording in the folder; without it a folder that holds one is refused.
        progress: called with the name of the step, prompts done and their number, where the
            corpus knows it.

    Returns:
        The recording, for reading.

    Raises:
        OptionError: an activation cannot be recorded, or the folder holds another recording.
        PromptError: a prompt does not fit the model, or the corpus differs from the recorded part.
        NonFiniteError: an activation is not finite in the requested data type.
        StoreError: the folder cannot be written, or another process is recording into it.
    """
    folder = Path(folder)
    request = _request(
        model, names, layers, stack, heads, max_length, dtype, batch_size, shard_bytes
    )
    ids = corpus_ids(corpus, model, max_length)
    total = number_of_prompts(corpus) if progress is not None else None
    require_writable(folder)
    clear_abandoned(folder)
    with _alone(folder):
        index = _begun(folder, request, resume) or RecordingIndex(
            request, _provenance(model, request)
        )
        recorder = _Recorder(model, folder, index)
        for number, shard in enumerate(list(index.shards)):
            recorder.take_again(number, shard, list(islice(ids, shard.n_prompts)))
            _tell(progress, shard.first_prompt + shard.n_prompts, total)
        while group := list(islice(ids, batch_size)):
            recorder.add(group)
            _tell(progress, recorder.n_seen, total)
        recorder.finish()
    return RecordedActivations(folder)


def _tell(progress: Progress | None, done: int, total: int | None) -> None:
    if progress is not None and total is not None:
        progress("recording", done, total)


def _request(
    model: Model,
    names: Sequence[str],
    layers: Any,
    stack: str | None,
    heads: Any,
    max_length: int | None,
    dtype: str | None,
    batch_size: int,
    shard_bytes: int,
) -> dict[str, Any]:
    """Check a request and return what decides the recorded bytes."""
    names = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
    if not names:
        raise OptionError(f"no activations were named; known: {', '.join(RECORDED)}")
    for name in names:
        if name in NAMES and name not in RECORDED:
            raise OptionError(
                f"{name} has a value per pair of positions and is not recorded; use Model.capture, "
                f"or record one of {', '.join(RECORDED)}"
            )
    if dtype is not None and dtype not in DTYPES:
        raise OptionError(f"unknown data type {dtype!r}; known: {', '.join(DTYPES)}")
    for option, value in (("batch_size", batch_size), ("shard_bytes", shard_bytes)):
        if value < 1:
            raise OptionError(f"{option} {value} is too small; give at least 1")
    if max_length is not None and max_length < 1:
        raise OptionError(f"max_length {max_length} is too small; give at least 1")
    chosen = requested(model, names, layers, stack, heads, None, None)
    if not chosen.heads:
        raise OptionError(f"no layer was chosen; {model.name} has {', '.join(model.stacks)}")
    return {
        "model": model.content_hash,
        "names": list(names),
        "layers": [[stack, layer] for stack, layer in chosen.heads],
        "heads": [list(heads) for heads in chosen.heads.values()],
        "dtype": dtype or str(model.dtype).removeprefix("torch."),
        "max_length": max_length,
        "batch_size": batch_size,
        "shard_bytes": shard_bytes,
        "edits": list(model.active_edits),
    }


def _provenance(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    options = {name: value for name, value in request.items() if name != "model"}
    provenance = result_provenance(model, "interp.record_activations", **options)
    return provenance | {"prompts": "a corpus; its tokens are in the shards", "engine": "stored"}


def _begun(folder: Path, request: dict[str, Any], resume: bool) -> RecordingIndex | None:
    """Return the index of a recording to continue, or None for a folder without one."""
    if not (folder / INDEX).exists():
        return None
    if not resume:
        raise OptionError(f"{folder} already holds a recording; choose another folder")
    index = read_index(folder)
    if differences := differing(index.request, request):
        raise OptionError(
            f"{folder} holds another recording ({'; '.join(differences)}); choose another folder"
        )
    return index


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse a second process that records into the folder; a killed one leaves no lock behind."""
    try:
        import fcntl
    except ImportError:  # not on this system: the index is still written whole or not at all
        yield
        return
    path = folder / ".lock"
    try:
        handle = path.open("wb")
    except OSError as error:
        raise StoreError(cannot_write(path, error)) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                f"another process is recording into {folder}; wait until it ends, or choose "
                "another folder"
            ) from error
        yield


class _Recorder:
    """Activations of the shard in progress, and the index of the finished ones."""

    def __init__(self, model: Model, folder: Path, index: RecordingIndex):
        self.model, self.folder, self.index = model, folder, index
        self.dtype = getattr(torch, index.request["dtype"])
        self.n_seen = index.n_prompts
        self._clear()

    def _clear(self) -> None:
        self.found: dict[str, list[Tensor]] = {}
        self.prompts: list[Tokens] = []
        self.n_bytes = 0

    def take_again(self, number: int, shard: RecordedShard, prompts: list[Tokens]) -> None:
        """Compare the corpus with a finished shard; compute the shard again if it is damaged."""
        if prompts_sha256(prompts) != shard.prompts_sha256:
            last = shard.first_prompt + shard.n_prompts - 1
            raise PromptError(
                f"the corpus differs from the one recorded in {self.folder} between prompts "
                f"{shard.first_prompt} and {last}; choose another folder"
            )
        if fault(self.folder, shard) is None:
            return
        size = self.index.request["batch_size"]
        for start in range(0, len(prompts), size):
            self._run(prompts[start : start + size])
        self.index.shards[number] = self._write(number, shard.first_prompt)
        self.index.write(self.folder)

    def add(self, prompts: list[Tokens]) -> None:
        """Run some prompts, and write a shard when enough activations are held."""
        self._run(prompts)
        self.n_seen += len(prompts)
        if self.n_bytes >= self.index.request["shard_bytes"]:
            self._close()

    def finish(self) -> None:
        """Write what is left, and mark the recording as complete."""
        if self.prompts:
            self._close()
        if not self.index.shards:
            raise PromptError("no prompts given")
        if not self.index.complete:
            self.index.complete = True
            self.index.write(self.folder)

    def _close(self) -> None:
        shard = self._write(len(self.index.shards), self.index.n_prompts)
        self.index.shards.append(shard)
        self.index.complete = False
        self.index.write(self.folder)

    def _run(self, prompts: list[Tokens]) -> None:
        asked = self.index.request
        wanted = {
            (stack, layer): heads
            for (stack, layer), heads in zip(
                map(tuple, asked["layers"]), asked["heads"], strict=True
            )
        }
        several = len({stack for stack, _ in wanted}) > 1
        heads = asked["heads"][0] if len({*map(tuple, asked["heads"])}) == 1 else None
        for batch in self.model.batches(Prompts(tuple(prompts)), asked["batch_size"]):
            cache = self.model.capture(
                batch,
                asked["names"],
                layers=sorted({layer for _, layer in wanted}),
                stack=None if several else next(iter(wanted))[0],
                heads=heads,
                to="cpu",
            )
            lengths = [len(ids) for ids in batch.ids]
            for name in asked["names"]:
                for (stack, layer), value in cache.by_site(name).items():
                    if (stack, layer) in wanted:
                        self._keep(name, stack, layer, value, lengths)
        self.prompts += prompts

    def _keep(self, name: str, stack: str, layer: int, value: Tensor, lengths: list[int]) -> None:
        """Store one activation of the real tokens of a batch, tokens first."""
        by_position = value.transpose(1, 2) if name in ("q", "k", "v", "z") else value
        if by_position.shape[1] != max(lengths):
            raise OptionError(
                f"{name} of {stack} layer {layer} has {by_position.shape[1]} positions for "
                f"{max(lengths)} tokens, so it is not recorded; choose other layers or a stack"
            )
        key = tensor_name(name, stack, layer)
        for item, length in enumerate(lengths):
            x = by_position[item, :length].to(self.dtype)
            if not bool(x.isfinite().all()):
                raise NonFiniteError(
                    f"{name} of {stack} layer {layer}, prompt {len(self.prompts) + item} of this "
                    f"shard: not finite in {self.index.request['dtype']}; give another dtype"
                )
            self.found.setdefault(key, []).append(x.contiguous())
            self.n_bytes += x.nbytes
        self.index.shapes[key] = list(by_position.shape[2:])

    def _write(self, number: int, first_prompt: int) -> RecordedShard:
        from safetensors.torch import save

        lengths = torch.tensor([0, *map(len, self.prompts)])
        tensors = {
            "tokens": torch.tensor([t for ids in self.prompts for t in ids], dtype=torch.int32),
            "offsets": lengths.cumsum(0),
        }
        n_prompts, checksum = len(self.prompts), prompts_sha256(self.prompts)
        n_tokens = int(lengths.sum())
        while self.found:  # each list is released as soon as it is joined
            key, parts = self.found.popitem()
            tensors[key] = torch.cat(parts)
        content = save(tensors)
        self._clear()
        name = shard_name(number)
        write_atomically(self.folder / name, content)
        return RecordedShard(
            name,
            first_prompt,
            n_prompts,
            n_tokens,
            len(content),
            hashlib.sha256(content).hexdigest(),
            checksum,
        )
