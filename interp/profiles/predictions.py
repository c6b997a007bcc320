"""Predictions of a model on a text: the next token everywhere, or tokens that are masked."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.core.prompts import Prompts
from interp.model.segments import special_ids

if TYPE_CHECKING:
    from jaxtyping import Int

    from interp.model.calls.sites import Site
    from interp.model.model import Model
    from interp.profiles.corpus import TextWindow

MASKED = 0.15  # share of the tokens of a window that are masked


@dataclass(frozen=True, eq=False)
class PredictedText:
    """A window as it is read, and the tokens that are predicted.

    Args:
        window: the window, with masks in place of masked tokens; its queries are those at which
            predictions are compared.
        places: positions whose logits predict a token.
        truth: positions of these tokens in the text.
        tokens: the tokens.
    """

    window: TextWindow
    places: Int[np.ndarray, " token"]
    truth: Int[np.ndarray, " token"]
    tokens: Int[np.ndarray, " token"]


@dataclass(frozen=True)
class Prediction:
    """The definition of the loss of a model on a text.

    Args:
        mask: id of the mask; None for a model that predicts the next token.
        special: ids of tokens that are not masked.
        seed: seed of the choice of masked tokens.
    """

    mask: int | None = None
    special: tuple[int, ...] = ()
    seed: int = 0

    @property
    def name(self) -> str:
        """The kind of token that is predicted."""
        return "next token" if self.mask is None else "masked token"

    def of(self, window: TextWindow) -> PredictedText:
        """Return what is predicted of a window; of a masked model the same tokens every time."""
        ids = np.asarray(window.ids)
        if self.mask is None:
            at = np.arange(len(ids) - 1)
            return PredictedText(window, at, at + 1, ids[1:])
        able = np.flatnonzero(~np.isin(ids, self.special))
        able = able if len(able) else np.arange(len(ids))
        rng = np.random.default_rng([self.seed, window.offset, zlib.crc32(ids.tobytes())])
        at = np.sort(rng.choice(able, max(1, round(MASKED * len(able))), replace=False))
        masked = ids.copy()
        masked[at] = self.mask
        read = dataclasses.replace(window, ids=tuple(masked.tolist()), queries=at)
        return PredictedText(read, at, at, ids[at])


@torch.no_grad()
def prediction_of(model: Model, sites: Sequence[Site], seed: int) -> Prediction | str:
    """Return what a model predicts, or why its loss on a text cannot be measured."""
    if model.elsewhere is not None or model.ranks is not None:
        return f"{model.name} does not run in this process alone"
    mask = None
    if model.kind == "encoder":
        mask = getattr(model.tokenizer, "mask_token_id", None)
        if mask is None:
            mask = getattr(model.config, "mask_token_id", None)
        if mask is None:
            return f"{model.name} (encoder) has no mask token, so it predicts no token of a text"
    elif model.kind != "causal":
        return f"{model.name} ({model.kind}) does not predict the tokens of a text"
    logits = model.run(Prompts(((0, 0),)))
    if logits.dim() != 3 or logits.shape[-1] < model.d_vocab:
        return f"{model.name} has no output of logits"
    if len({site.stack for site in sites}) != 1:
        return f"{model.name} has several stacks"
    return Prediction(mask, tuple(special_ids(model)), seed)
