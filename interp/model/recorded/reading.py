"""`RecordedActivations`: memory-mapped reading of recorded activations by prompt and position."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.errors import OptionError, StoreError
from interp.model.capture import NotCaptured
from interp.model.recorded.layout import RecordedShard, fault, read_index, tensor_name


class RecordedActivations:
    """Activations of a corpus in a folder, read where they are needed.

    Files are memory-mapped: only the pages that hold the requested tokens are read. Tokens of all
    prompts are numbered one after the other; `prompt_of` turns such a number into prompt and
    position.

    Args:
        folder: the folder that `interp.record_activations` wrote.

    Raises:
        StoreError: the folder holds no recording, or files are missing or cut short.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.index = read_index(self.folder)
        for shard in self.index.shards:
            if why := fault(self.folder, shard, checksum=False):
                raise StoreError(
                    f"{self.folder}: {why}; run the same `interp record` again, which computes "
                    "damaged files anew"
                )
        shards = self.index.shards
        self._first_token = np.cumsum([0, *(s.n_tokens for s in shards)])
        self._first_prompt = [s.first_prompt for s in shards]
        self._open: dict[str, Any] = {}
        self._offsets: dict[str, np.ndarray] = {}

    def __repr__(self) -> str:
        state = "complete" if self.complete else "not complete"
        return (
            f"RecordedActivations({self.provenance.get('name')}: {', '.join(self.names)}; layers "
            f"{self.layers}; {self.n_prompts:,} prompts, {self.n_tokens:,} tokens, {state})"
        )

    @property
    def names(self) -> list[str]:
        """Names of the recorded activations, such as `z`."""
        return list(self.index.request["names"])

    @property
    def layers(self) -> list[int]:
        """Recorded layers."""
        return sorted({layer for _, layer in map(tuple, self.index.request["layers"])})

    @property
    def n_prompts(self) -> int:
        """Number of recorded prompts."""
        return self.index.n_prompts

    @property
    def n_tokens(self) -> int:
        """Number of recorded tokens of all prompts."""
        return self.index.n_tokens

    @property
    def complete(self) -> bool:
        """True if the whole corpus was recorded; False while it is interrupted."""
        return self.index.complete

    @property
    def provenance(self) -> dict[str, Any]:
        """Model, its hash, options and versions of the recording."""
        return self.index.provenance

    def tokens(self, prompt: int) -> Int[Tensor, "pos"]:
        """Return the token ids of one prompt."""
        shard, start, stop = self._place(prompt)
        return self._shard(shard).get_tensor("tokens")[start:stop].clone()

    def read(
        self,
        name: str,
        layer: int,
        prompt: int,
        positions: int | slice | Sequence[int] = slice(None),
        *,
        stack: str | None = None,
    ) -> Float[Tensor, "pos *shape"]:
        """Return one activation of one prompt at the given positions.

        Args:
            name: the activation, such as `z`.
            layer: the layer.
            prompt: number of the prompt in the corpus.
            positions: positions in the prompt; negative ones count from its end.
            stack: the attention stack, where several have this layer.

        Raises:
            NotCaptured: the activation was not recorded.
            OptionError: the prompt or a position does not exist.
        """
        shard, start, stop = self._place(prompt)
        key = self._key(name, layer, stack)
        if isinstance(positions, slice):
            first, last, step = positions.indices(stop - start)
            if step > 0:
                held = self._shard(shard).get_slice(key)[start + first : start + max(first, last)]
                return held[::step].clone() if step > 1 else held
            positions = range(first, last, step)
        given = [positions] if isinstance(positions, int) else list(positions)
        outside = [p for p in given if not -(stop - start) <= p < stop - start]
        if outside:
            raise OptionError(
                f"prompt {prompt} has {stop - start} positions; there is no position {outside[0]}"
            )
        at = torch.tensor([start + p % (stop - start) for p in given], dtype=torch.long)
        values = self._shard(shard).get_tensor(key).index_select(0, at)
        return values[0] if isinstance(positions, int) else values

    def at(
        self,
        name: str,
        layer: int,
        tokens: Sequence[int] | np.ndarray | Tensor,
        *,
        stack: str | None = None,
    ) -> Float[Tensor, "token *shape"]:
        """Return one activation of tokens of any prompts, by their numbers in the recording.

        Args:
            name: the activation.
            layer: the layer.
            tokens: numbers of the tokens, from 0 to `n_tokens - 1`.
            stack: the attention stack, where several have this layer.

        Raises:
            OptionError: a number does not exist.
        """
        key = self._key(name, layer, stack)
        asked = np.asarray(tokens, dtype=np.int64).reshape(-1)
        self._require_tokens(asked)
        holder = np.searchsorted(self._first_token, asked, side="right") - 1
        parts, rows = [], []
        for number in np.unique(holder):
            here = np.flatnonzero(holder == number)
            local = torch.from_numpy(asked[here] - self._first_token[number])
            shard = self.index.shards[number]
            parts.append(self._shard(shard).get_tensor(key).index_select(0, local))
            rows.append(torch.from_numpy(here))
        if not parts:
            raise OptionError("no tokens were asked for; give at least one number")
        out = parts[0].new_empty((len(asked), *parts[0].shape[1:]))
        for here, part in zip(rows, parts, strict=True):
            out[here] = part
        return out

    def prompt_of(self, token: int) -> tuple[int, int]:
        """Return the prompt and the position of a token of the recording."""
        self._require_tokens(np.array([token]))
        number = int(np.searchsorted(self._first_token, token, side="right")) - 1
        shard = self.index.shards[number]
        inside = token - int(self._first_token[number])
        offsets = self._offsets_of(shard)
        local = int(np.searchsorted(offsets, inside, side="right")) - 1
        return shard.first_prompt + local, inside - int(offsets[local])

    def batches(
        self,
        name: str,
        layer: int,
        size: int,
        *,
        stack: str | None = None,
        seed: int | None = None,
    ) -> Iterator[tuple[Int[Tensor, "token"], Float[Tensor, "token *shape"]]]:
        """Yield numbers of tokens and their activations, every token once.

        Args:
            name: the activation.
            layer: the layer.
            size: tokens of a batch; the last one may have fewer.
            stack: the attention stack, where several have this layer.
            seed: seed of a random order over the whole recording; in order of the corpus if None.
        """
        if size < 1:
            raise OptionError(f"batch size {size} is too small; give at least 1")
        order = (
            np.arange(self.n_tokens)
            if seed is None
            else np.random.default_rng(seed).permutation(self.n_tokens)
        )
        for start in range(0, len(order), size):
            part = order[start : start + size]
            yield torch.from_numpy(part), self.at(name, layer, part, stack=stack)

    def verify(self) -> None:
        """Read every file and compare its checksum with the index.

        Raises:
            StoreError: names every file that is missing or damaged.
        """
        faults = [why for shard in self.index.shards if (why := fault(self.folder, shard))]
        if faults:
            raise StoreError(
                f"{self.folder}: {'; '.join(faults)}; run the same `interp record` again, which "
                "computes damaged files anew"
            )

    def _require_tokens(self, asked: np.ndarray) -> None:
        outside = asked[(asked < 0) | (asked >= self.n_tokens)]
        if len(outside):
            raise OptionError(
                f"there is no token {outside[0]}; the recording has tokens 0 to {self.n_tokens - 1}"
            )

    def _key(self, name: str, layer: int, stack: str | None) -> str:
        fits = [
            tensor_name(name, s, x)
            for s, x in map(tuple, self.index.request["layers"])
            if x == layer and stack in (None, s) and name in self.names
        ]
        if len(fits) > 1:
            stacks = ", ".join(key.split(".")[1] for key in fits)
            raise OptionError(f"layer {layer} was recorded in {stacks}; name the stack")
        if not fits:
            raise NotCaptured(
                f"{name} of layer {layer} was not recorded; {self.folder} holds "
                f"{', '.join(self.names)} of layers {', '.join(map(str, self.layers))}"
            )
        return fits[0]

    def _shard(self, shard: RecordedShard) -> Any:
        if shard.file not in self._open:
            from safetensors import SafetensorError, safe_open

            path = self.folder / shard.file
            try:
                self._open[shard.file] = safe_open(path, framework="pt").__enter__()
            except (SafetensorError, OSError) as error:
                raise StoreError(
                    f"{path} is damaged ({error}); run the same `interp record` again, which "
                    "computes damaged files anew"
                ) from error
        return self._open[shard.file]

    def _offsets_of(self, shard: RecordedShard) -> np.ndarray:
        if shard.file not in self._offsets:
            self._offsets[shard.file] = self._shard(shard).get_tensor("offsets").numpy()
        return self._offsets[shard.file]

    def _place(self, prompt: int) -> tuple[RecordedShard, int, int]:
        if not 0 <= prompt < self.n_prompts:
            raise OptionError(
                f"there is no prompt {prompt}; the recording has prompts 0 to {self.n_prompts - 1}"
            )
        shard = self.index.shards[bisect_right(self._first_prompt, prompt) - 1]
        local = prompt - shard.first_prompt
        offsets = self._offsets_of(shard)
        return shard, int(offsets[local]), int(offsets[local + 1])
