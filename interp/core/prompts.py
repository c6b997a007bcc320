"""Prompts as token ids, and generators of synthetic prompts with known answers.

Synthetic prompts stay token ids: decoding and re-encoding random tokens would change the repetition
that they are made for.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from interp.core.chat import ChatRoles, encoded_chat, is_chat, reads_as_chat, tell_reading
from interp.core.errors import OptionError, PromptError
from interp.core.tokens import encoded_text, words

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor

    from interp.core.protocols import TokenModel


@dataclass(frozen=True)
class Prompts:
    """Token ids, one tuple per prompt, and a description of their origin.

    `targets` are the tokens that token-dependent predicates read. They differ from `ids` only for a
    null, where the model reads shuffled tokens and is scored on the original ones. `clusters`
    labels what prompts share (a period, a template); standard errors are computed over clusters.
    Without labels every prompt is its own cluster. `decoder` are the tokens that the decoder of an
    encoder-decoder reads beside each prompt; without them it reads the prompts themselves. `roles`
    are those of the messages of chats, by the position of each token that predicates read.
    """

    ids: tuple[tuple[int, ...], ...]
    design: str = "given"
    padding: Literal["right", "left"] = "right"
    targets: tuple[tuple[int, ...], ...] | None = None
    clusters: tuple[str, ...] | None = None
    decoder: Prompts | None = None
    roles: tuple[ChatRoles, ...] | None = None

    def __post_init__(self) -> None:
        if self.decoder is not None and len(self.decoder) != len(self.ids):
            raise PromptError(
                f"{len(self.decoder)} decoder inputs for {len(self.ids)} prompts; give one each"
            )
        if self.clusters is not None and len(self.clusters) != len(self.ids):
            raise PromptError(
                f"{len(self.clusters)} cluster labels for {len(self.ids)} prompts; give one each"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, prompts: Any, model: TokenModel) -> Prompts:
        """Make prompts from prompts, a text, texts, a chat, chats, id lists or an id tensor.

        A chat is a list of messages, `{"role": "user", "content": "Hello"}`, which the tokenizer's
        chat template renders; of a model loaded with `chat=True` a text is the user's message.

        Raises:
            PromptError: there are no prompts, text is given for a model without a tokenizer, or a
                chat for one without a chat template.
        """
        if isinstance(prompts, Prompts):
            return prompts
        clusters = getattr(prompts, "clusters", None)  # of a file of prompts
        if isinstance(prompts, str):
            prompts = [prompts]
        if is_chat(prompts):
            prompts = [prompts]
        if hasattr(prompts, "detach"):  # a tensor, recognised without importing torch
            prompts = prompts.tolist() if prompts.dim() > 1 else [prompts.tolist()]
        if not isinstance(prompts, Iterable) or isinstance(prompts, (bytes, Mapping)):
            raise PromptError(
                f"{type(prompts).__name__} is not a prompt; give a text, a chat, a list of token "
                "ids, or a list of these"
            )
        prompts = list(prompts)
        if not prompts:
            raise PromptError("no prompts given")
        if all(isinstance(p, str) for p in prompts):
            if model.tokenizer is None:
                raise PromptError(f"{model.name} has no tokenizer, so it takes token ids, not text")
            tell_reading(model)
            # `check` reports prompts that are too long; the tokenizer's warning would repeat it
            if not reads_as_chat(model, prompts[0]):
                coded = (encoded_text(model.tokenizer, p, verbose=False) for p in prompts)
                return cls(tuple(tuple(x["input_ids"]) for x in coded), "text", clusters=clusters)
        if all(reads_as_chat(model, p) for p in prompts):
            ids, roles = zip(*(encoded_chat(model, p) for p in prompts), strict=True)
            design = "chats" if is_chat(prompts[0]) else "texts as user turns"
            return cls(ids, design, clusters=clusters, roles=roles)
        if all(isinstance(p, (int, np.integer)) for p in prompts):
            prompts = [prompts]
        try:
            ids = tuple(tuple(operator.index(t) for t in p) for p in prompts)
        except (TypeError, ValueError) as error:
            raise PromptError(
                "prompts must be texts, chats or lists of token ids, all of one kind"
            ) from error
        return cls(ids, clusters=clusters)

    def check(self, model: TokenModel) -> None:
        """Raise if the model cannot run these prompts.

        Raises:
            PromptError: an empty prompt, ids outside the vocabulary, or more tokens than the
                model has positions.
        """
        if not self.ids:
            raise PromptError("no prompts given")
        known = model.d_vocab  # read once: each access searches the config
        for i, ids in enumerate(self.ids):
            if not ids:
                raise PromptError(f"prompt {i} is empty")
            if known and not all(0 <= t < known for t in ids):
                bad = next(t for t in ids if not 0 <= t < known)
                raise PromptError(
                    f"prompt {i} holds the token id {bad}; {model.name} knows 0 to {known - 1}"
                )
            if model.limit is not None and len(ids) > model.limit:
                raise PromptError(
                    f"prompt {i} has {len(ids)} tokens; {model.name} has positions for "
                    f"{model.limit}; shorten it"
                )
        if self.decoder is not None:
            try:
                self.decoder.check(model)
            except PromptError as error:
                raise PromptError(f"decoder input: {error}") from error

    def padded(self, pad: int = 0) -> tuple[Int[Tensor, "batch pos"], Bool[Tensor, "batch pos"]]:
        """Return ids as one rectangle, padded with `pad`, and a mask of the real tokens."""
        import torch

        longest = max(map(len, self.ids))
        ids = torch.full((len(self.ids), longest), pad, dtype=torch.long)
        real = torch.zeros(len(self.ids), longest, dtype=torch.bool)
        for row, prompt in enumerate(self.ids):
            at = (
                slice(longest - len(prompt), None) if self.padding == "left" else slice(len(prompt))
            )
            ids[row, at] = torch.tensor(prompt)
            real[row, at] = True
        return ids, real

    def batches(self, size: int, *, padded: bool = True) -> Iterator[Prompts]:
        """Yield the prompts in their order, at most `size` at a time.

        Args:
            size: the largest number of prompts of a batch.
            padded: prompts of different lengths may share a batch.
        """
        if size < 1:
            raise OptionError(f"batch size {size} is too small; give at least 1")
        end = 0
        while end < len(self.ids):
            start, end = end, min(end + size, len(self.ids))
            if not padded:
                same = (self._shape(i) == self._shape(start) for i in range(start, end))
                end = start + sum(1 for _ in takewhile(bool, same))
            yield self.part(range(start, end))

    def _shape(self, at: int) -> tuple[int, int]:
        return len(self.ids[at]), 0 if self.decoder is None else len(self.decoder.ids[at])

    def part(self, which: Sequence[int]) -> Prompts:
        """Return some of the prompts, with their targets, clusters and decoder inputs."""
        ids, targets, clusters, roles = (
            None if x is None else tuple(x[i] for i in which)
            for x in (self.ids, self.targets, self.clusters, self.roles)
        )
        decoder = None if self.decoder is None else self.decoder.part(which)
        return replace(
            self, ids=ids or (), targets=targets, clusters=clusters, decoder=decoder, roles=roles
        )

    def beginning(self, length: int) -> Prompts:
        """Return the first tokens of each prompt, with their targets and roles."""
        ids, targets = (
            None if rows is None else tuple(row[:length] for row in rows)
            for rows in (self.ids, self.targets)
        )
        roles = self.roles and tuple(replace(x, of_tokens=x.of_tokens[:length]) for x in self.roles)
        return replace(self, ids=ids or (), targets=targets, roles=roles)

    def looked_at(self) -> tuple[tuple[int, ...], ...]:
        """Return the tokens that predicates read."""
        return self.ids if self.targets is None else self.targets

    def shuffled(self, seed: int, keep_first: bool) -> Prompts:
        """Return the null: each prompt's tokens in random order, scored on the original ones.

        Args:
            seed: seed of the random order.
            keep_first: leave the first token (a BOS) in its place.
        """
        rng = np.random.default_rng(seed)
        first = int(keep_first)
        ids = tuple((*p[:first], *rng.permutation(p[first:]).tolist()) for p in self.ids)
        decoder = self.decoder
        return replace(
            self,
            ids=ids,
            targets=self.looked_at(),
            design=f"{self.design}, tokens shuffled",
            decoder=None if decoder is None else decoder.shuffled(seed + 1, keep_first=True),
        )

    @property
    def prompt_ids(self) -> tuple[str, ...]:
        """Identity of each prompt: the first 16 hex digits of the sha256 of its token ids."""
        read: Sequence[object] = self.looked_at()
        if self.decoder is not None:
            read = list(zip(read, self.decoder.looked_at(), strict=True))
        return tuple(hashlib.sha256(repr(p).encode()).hexdigest()[:16] for p in read)

    @property
    def hash(self) -> str:
        """sha256 of ids, targets, padding side, clusters, roles and decoder inputs."""
        stated: tuple = (self.ids, self.targets, self.padding, self.clusters)
        if self.roles is not None:
            stated += ([(x.of_tokens, x.unknown) for x in self.roles],)
        if self.decoder is not None:
            stated += (self.decoder.hash,)
        return hashlib.sha256(repr(stated).encode()).hexdigest()


def bos_id(model: TokenModel) -> int | None:
    """Return the token that a prompt begins with: BOS, or CLS of an encoder; None without one."""
    for holder in (model.tokenizer, model.config):
        for name in ("bos_token_id", "cls_token_id"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and 0 <= value < model.d_vocab:
                return value
    return None


def ordinary_ids(model: TokenModel) -> np.ndarray:
    """Return the ids of the vocabulary without special tokens."""
    special = set(getattr(model.tokenizer, "all_special_ids", None) or [])
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
        value = getattr(model.config, name, None)
        special |= set(value) if isinstance(value, list) else {value}
    known = model.d_vocab if model.tokenizer is None else min(model.d_vocab, len(model.tokenizer))
    ids = np.array([i for i in range(known) if i not in special], dtype=np.int64)
    return ids if len(ids) >= 2 else np.arange(model.d_vocab)


def repeats(
    model: TokenModel,
    *,
    n: int = 16,
    max_length: int = 24,
    copies: int = 2,
    seed: int = 0,
    beyond: bool = False,
) -> Prompts:
    """Generate `[BOS] r r`: random tokens followed by their repetition, with varying periods.

    Tokens are drawn without replacement where the vocabulary is large enough. Periods range from
    half of `max_length` to `max_length` (a single prompt has period `max_length`), so that a head
    that attends at a fixed distance gets a low score. Prompts of one period are a cluster.

    Args:
        model: the loaded model, for its vocabulary and context length.
        n: number of prompts.
        max_length: longest period, in tokens.
        copies: number of copies of the random tokens in a prompt.
        seed: seed of the random tokens and periods.
        beyond: where positions are computed, allow more tokens than the config states.

    Raises:
        PromptError: the model's context has no room for `copies` copies of two tokens.
    """
    if isinstance(model, str):
        raise OptionError(
            f"repeats needs the vocabulary of a loaded model; give interp.load({model!r})"
        )
    rng = np.random.default_rng(seed)
    bos, ids = bos_id(model), ordinary_ids(model)
    stated = None if beyond else model.context
    room = min(x for x in (model.limit, stated, 10**9) if x is not None) - (bos is not None)
    max_length = min(max_length, room // copies)
    if max_length < 2:
        raise PromptError(
            f"{model.name} has room for {room} tokens; repeats need at least {2 * copies}"
        )
    shortest = max_length if n == 1 else max(2, max_length // 2)
    prompts, periods = [], []
    for _ in range(n):
        period = int(rng.integers(shortest, max_length + 1))
        part = rng.choice(ids, period, replace=period > len(ids)).tolist()
        prompts.append(((bos,) if bos is not None else ()) + tuple(part) * copies)
        periods.append(f"period {period}")
    policy = "BOS first" if bos is not None else "no BOS"
    return Prompts(
        tuple(prompts),
        f"random tokens repeated {copies}x, period {shortest} to {max_length}, {policy}",
        clusters=tuple(periods),
    )


def from_file(path: str | Path, model: TokenModel, *, context: int | None = None) -> Prompts:
    """Read the prompts of a file: one per line, or the whole file cut to `context` tokens."""
    from interp.core.prompt_file import prompt_text, read_prompt_file

    path = Path(path)
    if context is None:
        return replace(Prompts.of(read_prompt_file(path), model), design=f"lines of {path.name}")
    if path.suffix.lower() == ".jsonl":
        raise PromptError(
            f"{path} holds separate prompts, which --max-length would join; give a text file, or "
            "leave --max-length out"
        )
    whole = Prompts.of([prompt_text(path)], model)
    if len(whole.ids[0]) < context:
        raise PromptError(
            f"{path} has {len(whole.ids[0])} tokens, fewer than --max-length {context}; give a "
            "smaller --max-length"
        )
    return replace(whole.beginning(context), design=f"first {context} tokens of {path.name}")


def text_of(prompts: Sequence[int], model: TokenModel) -> list[str]:
    """Decode tokens to text, one by one; ids in brackets where there is no tokenizer."""
    if model.tokenizer is None:
        return [f"<{t}>" for t in prompts]
    return [*words(model, prompts)]


def random_tokens(
    model: TokenModel,
    *,
    n: int = 16,
    max_length: int = 64,
    period: int | None = None,
    seed: int = 0,
) -> Prompts:
    """Return prompts of `[BOS]` and random tokens, `max_length` in all or as many as fit.

    Without a period no token repeats (as far as the vocabulary allows); with one, a block of that
    many tokens is repeated, so that all but its first copy is predictable.
    """
    first, ids = bos_id(model), ordinary_ids(model)
    max_length = min(x for x in (max_length, model.limit, model.context) if x)
    if max_length < 4:
        raise PromptError(
            f"{model.name} has positions for {max_length} tokens; at least 4 are needed"
        )
    room = max_length - (first is not None)
    block = room if period is None else period
    if not 0 < block <= room or (period is not None and room < 2 * block):
        raise PromptError(
            f"two copies of a block of {block} tokens do not fit into {room} positions of "
            f"{model.name}; use a shorter block"
        )
    rng = np.random.default_rng([seed, 7])
    rows = []
    for _ in range(n):
        part = rng.choice(ids, block, replace=block > len(ids))
        tokens = np.resize(part, room).tolist()
        rows.append(((first,) if first is not None else ()) + tuple(tokens))
    what = "none repeated" if period is None else f"repeated blocks of {period}"
    policy = "BOS first" if first is not None else "no BOS"
    return Prompts(tuple(rows), f"random tokens, {what}, {max_length} tokens, {policy}")
