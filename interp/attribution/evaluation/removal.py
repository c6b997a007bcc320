"""The target's number when source tokens are taken away: the intervention that others are held to.

delete   the token is gone, and those behind it move up
mask     the tokenizer's mask token stands in its place
mean     the mean of the prompt's own token embeddings stands in its place
NUMBER   the token of that id stands in its place
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.model.hooks.inference import in_this_thread
from interp.model.inputs import is_encoder_decoder
from interp.model.locate.find_layout import layouts

if TYPE_CHECKING:
    from interp.attribution.example import Example

Array = np.ndarray
HOWS = ("delete", "mask", "mean")


def default_removal(example: Example) -> str:
    """`mask` where the tokenizer has a mask token, `mean` where it has none."""
    return "mask" if _mask_id(example) is not None else "mean"


def values_without(
    example: Example,
    gone: Bool[Array, "variant source"],
    how: str,
    batch_size: int = 16,
) -> Float[Array, " variant"]:
    """The target's number with the marked sources of each variant taken away.

    Raises:
        OptionError: an unknown `how`, or one that the model or the target does not allow.
        PromptError: a variant has no token left.
    """
    gone = np.asarray(gone, dtype=bool)
    if gone.ndim != 2 or gone.shape[1] != len(example):
        raise OptionError(
            f"gone has shape {gone.shape}; it is one row per variant over {len(example)} tokens"
        )
    if how == "delete":
        return _deleted(example, gone, batch_size)
    if how == "mean":
        return _through_embeddings(example, _to_mean(gone), len(gone), batch_size)
    token = _token(example, how)
    ids = np.where(gone, token, np.array(example.ids)[None])
    return example.values(ids.tolist(), batch_size)


def values_scaled(
    example: Example, kept: Bool[Array, "variant source d_model"], batch_size: int = 16
) -> Float[Array, " variant"]:
    """The target's number with entries of the token embeddings set to zero where not kept."""

    def change(x: Tensor, which: slice) -> Tensor:
        return x * torch.from_numpy(kept[which]).to(x)

    return _through_embeddings(example, change, len(kept), batch_size)


def embedding_width(example: Example) -> int:
    """Entries of a token's embedding, which some models project to the stream's width."""
    return int(_table(example).weight.shape[1])


def _deleted(example: Example, gone: Array, batch_size: int) -> Array:
    position = example.target.position
    moves = position not in (None, -1) and example.output.dim() == 3
    if moves and not is_encoder_decoder(example.model.module):
        raise OptionError(
            f"how='delete' moves the tokens behind, so position {position} of the target would be "
            "another; take how='mask' or how='mean', or a target at position -1"
        )
    if gone.all(1).any():
        raise PromptError(
            f"nothing is left of an input of {len(example)} token(s) when they are deleted; "
            "take how='mean'"
        )
    ids = [[t for t, out in zip(example.ids, row, strict=True) if not out] for row in gone]
    return example.values(ids, batch_size)


def _mask_id(example: Example) -> int | None:
    return getattr(example.model.tokenizer, "mask_token_id", None)


def _token(example: Example, how: str) -> int:
    name = example.model.name
    if how == "mask":
        token = _mask_id(example)
        if token is None:
            raise OptionError(f"{name} has no mask token; take how=delete, mean, or a token's id")
        return int(token)
    if not how.isdecimal():
        raise OptionError(f"how={how!r}; known: {', '.join(HOWS)}, or the id of a token")
    if int(how) >= example.model.d_vocab:
        raise OptionError(f"token id {how}; {name} knows 0 to {example.model.d_vocab - 1}")
    return int(how)


Change = Callable[[Tensor, slice], Tensor]
"""New embeddings of a batch of copies, from the embeddings and which variants they are."""


def _to_mean(gone: Array) -> Change:
    def change(x: Tensor, which: slice) -> Tensor:
        out = torch.from_numpy(gone[which]).to(x.device)[..., None]
        return torch.where(out, x.mean(1, keepdim=True), x)

    return change


def _table(example: Example) -> Any:
    """The module that looks up the sources' embeddings."""
    stream = "encoder" if is_encoder_decoder(example.model.module) else example.model.stacks[0]
    entering = layouts(example.model).vocabulary.entering.get(stream)
    if entering is None or isinstance(entering, str):
        raise UnreadableAttention(
            entering or f"{example.model.name}: the {stream} stream is made of no token ids"
        )
    return example.model.module.get_submodule(entering.table)


def _through_embeddings(example: Example, change: Change, n: int, batch_size: int) -> Array:
    if batch_size < 1:
        raise OptionError(f"batch size {batch_size}; it is at least 1")
    table, found = _table(example), []
    for start in range(0, n, batch_size):
        which = slice(start, min(start + batch_size, n))
        copies = which.stop - which.start
        inputs = {
            k: v.expand(copies, *v.shape[1:]) if isinstance(v, Tensor) else v
            for k, v in example.inputs.items()
        }
        with torch.no_grad(), _changed(table, lambda x, which=which: change(x, which)):
            found.append(example.read(example.model.run(inputs)).double().cpu())
    return torch.cat(found).numpy()


@contextmanager
def _changed(table: Any, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Change what the first look-up of a forward gives: that of the sources."""
    runs = 0

    def hook(module: Any, args: tuple, output: Tensor) -> Tensor | None:
        nonlocal runs
        runs += 1
        return change(output) if runs == 1 else None

    handle = table.register_forward_hook(in_this_thread(hook))
    try:
        yield
    finally:
        handle.remove()
    assert runs, "the embedding was found by a run, and runs in every other"


def one_by_one(sources: Sequence[int], n: int) -> Bool[Array, "variant source"]:
    """One variant per source: it alone is gone."""
    gone = np.zeros((len(sources), n), dtype=bool)
    gone[np.arange(len(sources)), list(sources)] = True
    return gone
