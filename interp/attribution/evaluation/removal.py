"""Value of the target after source tokens are removed: the reference intervention.

delete   remove the token, so that the tokens after it move forward by one position
mask     replace it by the tokenizer's mask token
mean     replace its embedding by the mean of the prompt's token embeddings
hide     keep it, and hide it from the attention of all other tokens, in every layer: their weights
         are normalised over the keys that are left, as if the cache held no key for it. The token
         still sees itself, so hiding the token at the target's own position changes nothing.
NUMBER   replace it by the token with this id

Soft metrics keep each entry of a token's embedding with a probability that grows with the token's
score (Zhao and Aletras 2023, "Incorporating Attribution Importance for Improving Faithfulness
Metrics"). Without correction, a method with large scores on all tokens keeps more of the input and
therefore appears better. Here the probabilities are scaled so that the expected share of kept
entries is the same for every method (similar to the pi-Soft metrics of Grad-ELLM, arXiv
2601.03089), and all methods use the same random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attribution.example import Example
from interp.core.errors import InterpError, OptionError, PromptError, UnreadableAttention
from interp.core.interrupts import holding
from interp.model.hooks.inference import in_this_thread
from interp.model.inputs import is_encoder_decoder
from interp.model.locate.find_layout import layouts

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
HOWS = ("delete", "mask", "mean", "hide")


def default_removal(example: Example) -> str:
    """Return "mask" if the tokenizer has a mask token, else "mean"."""
    return "mask" if _mask_id(example) is not None else "mean"


def values_without(
    example: Example,
    gone: Bool[Array, "variant source"],
    how: str,
    batch_size: int = 16,
) -> Float[Array, " variant"]:
    """Compute the target's value with the marked sources of each variant removed."""
    gone = np.asarray(gone, dtype=bool)
    if gone.ndim != 2 or gone.shape[1] != len(example):
        raise OptionError(
            f"gone has shape {gone.shape}; give one row per variant with {len(example)} columns, "
            "one per token"
        )
    if how == "delete":
        return _deleted(example, gone, batch_size)
    if how == "mean":
        return _through_embeddings(example, _to_mean(gone), len(gone), batch_size)
    if how == "hide":
        from interp.attribution.evaluation.hiding import values_hidden

        return values_hidden(example, gone, batch_size)
    token = _token(example, how)
    ids = np.where(gone, token, np.array(example.ids)[None])
    return example.values(ids.tolist(), batch_size)


def values_scaled(
    example: Example, kept: Bool[Array, "variant source d_model"], batch_size: int = 16
) -> Float[Array, " variant"]:
    """Compute the target's value with the embedding entries that are not kept set to zero."""

    def change(x: Tensor, which: slice) -> Tensor:
        return x * torch.from_numpy(kept[which]).to(x)

    return _through_embeddings(example, change, len(kept), batch_size)


def embedding_width(example: Example) -> int:
    """Return the width of the token embeddings, which may differ from that of the stream."""
    return int(_table(example).weight.shape[1])


def _deleted(example: Example, gone: Array, batch_size: int) -> Array:
    position = example.target.position
    moves = position not in (None, -1) and example.output.dim() == 3
    if moves and not is_encoder_decoder(example.model.module):
        raise OptionError(
            f"how='delete' moves the tokens behind it, so position {position} of the target would "
            "be another token; use how='mask' or how='mean', or a target at position -1"
        )
    if gone.all(1).any():
        raise PromptError(
            f"nothing is left of an input of {len(example)} token(s) when all of them are deleted; "
            "use how='mean'"
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
            raise OptionError(f"{name} has no mask token; use how=delete, mean, or a token id")
        return int(token)
    if not how.isdecimal():
        raise OptionError(
            f"unknown removal how={how!r}; known: {', '.join(HOWS)}, or the id of a token"
        )
    if int(how) >= example.model.d_vocab:
        raise OptionError(
            f"token id {how} lies outside the vocabulary of {name}; ids range from 0 to "
            f"{example.model.d_vocab - 1}"
        )
    return int(how)


Change = Callable[[Tensor, slice], Tensor]
"""Function from the embeddings of a batch and the slice of its variants to new embeddings."""


def _to_mean(gone: Array) -> Change:
    def change(x: Tensor, which: slice) -> Tensor:
        out = torch.from_numpy(gone[which]).to(x.device)[..., None]
        return torch.where(out, x.mean(1, keepdim=True), x)

    return change


def _table(example: Example) -> Any:
    """Return the module that looks up the embeddings of the sources."""
    stream = "encoder" if is_encoder_decoder(example.model.module) else example.model.stacks[0]
    entering = layouts(example.model).vocabulary.entering.get(stream)
    if entering is None or isinstance(entering, str):
        raise UnreadableAttention(
            entering or f"{example.model.name}: the {stream} stream does not start from token ids"
        )
    return example.model.module.get_submodule(entering.table)


def _through_embeddings(example: Example, change: Change, n: int, batch_size: int) -> Array:
    if batch_size < 1:
        raise OptionError(f"batch size {batch_size} is too small; it must be at least 1")
    table, values = _table(example), []
    for start in range(0, n, batch_size):
        which = slice(start, min(start + batch_size, n))
        copies = which.stop - which.start
        inputs = {
            k: v.expand(copies, *v.shape[1:]) if isinstance(v, Tensor) else v
            for k, v in example.inputs.items()
        }
        with torch.no_grad(), _changed(table, lambda x, which=which: change(x, which)):
            values.append(example.read(example.model.run(inputs)).double().cpu())
    return torch.cat(values).numpy()


@holding
@contextmanager
def _changed(table: Any, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Change the output of the first embedding look-up of a forward pass, that of the sources."""
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
    assert runs, "the embedding module was located by a run, so it runs in every forward pass"


def one_by_one(sources: Sequence[int], n: int) -> Bool[Array, "variant source"]:
    """Return one variant per source, in which only that source is removed."""
    gone = np.zeros((len(sources), n), dtype=bool)
    gone[np.arange(len(sources)), list(sources)] = True
    return gone


def matched_retention(size: Float[Array, " source"], share: float) -> Float[Array, " source"]:
    """Compute probabilities proportional to `size`, capped at 1, whose mean is `share`.

    If too few sizes are positive to reach the share, their probabilities are 1 and the remainder
    is spread equally over the others.
    """
    if not 0 <= share <= 1:
        raise OptionError(f"share={share} is out of range; it must lie between 0 and 1")
    size = np.maximum(np.asarray(size, dtype=np.float64), 0.0)
    n, want = len(size), share * len(size)
    full = np.zeros(n, dtype=bool)
    while True:
        left, rest = want - full.sum(), size * ~full
        if left <= 0:
            break
        if rest.sum() == 0:
            return np.where(full, 1.0, left / max((~full).sum(), 1))
        probability = rest * (left / rest.sum())
        over = probability >= 1
        if not over.any():
            return np.where(full, 1.0, probability)
        full |= over
    return full.astype(float)


def kept(
    probability: Float[Array, " source"], noise: Float[Array, "draw source d_model"]
) -> Bool[Array, "draw source d_model"]:
    """Choose the entries to keep, from uniform random numbers that all methods share."""
    return noise < probability[None, :, None]


def token_table(
    model: Any, text: str, target: Any, methods: Any, how: str, batch_size: int
) -> pd.DataFrame:
    """Return one row per token: position, token, special, a column per method, and the effect."""
    import pandas as pd

    example = Example(model, text, target)
    frame = pd.DataFrame(
        {"position": range(len(example)), "token": example.tokens, "special": example.special}
    )
    for method in methods:
        try:
            frame[method.label] = method.of(example).scores
        except InterpError:  # named with the failures of the judged texts
            frame[method.label] = math.nan
    where = np.flatnonzero(~example.special)
    gone = one_by_one(where.tolist(), len(example))
    effect = np.full(len(example), math.nan)
    effect[where] = example.value - values_without(example, gone, how, batch_size)
    return frame.assign(effect=effect)
