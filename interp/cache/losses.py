"""Measured loss of prompts under cut caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.cache.windows import KVHead, Window, cut_cache
from interp.core.errors import NonFiniteError, OptionError, PromptError
from interp.core.prompts import Prompts
from interp.model.edits import Edit
from interp.model.inputs import takes

if TYPE_CHECKING:
    from interp.model.model import Model


def token_losses(
    model: Model,
    prompts: Prompts,
    edits: Sequence[Edit] = (),
    *,
    scored: int | None = None,
    batch_size: int = 16,
) -> Float[np.ndarray, " prompt"]:
    """Return the mean negative log-likelihood per prompt, in nats per token."""
    if scored is not None and scored < 1:
        raise OptionError(f"scored={scored}: at least one token must count")
    short = [i for i, ids in enumerate(prompts.ids) if len(ids) < 2]
    if short:
        raise PromptError(f"prompt {short[0]} has one token; a loss needs at least two")
    losses = np.zeros(len(prompts))
    done = 0
    for batch in model.batches(prompts, batch_size):
        losses[done : done + len(batch)] = _of_batch(model, batch, edits, scored)
        done += len(batch)
    if not np.isfinite(losses).all():
        bad = int(np.flatnonzero(~np.isfinite(losses))[0])
        raise NonFiniteError(f"{model.name}: the loss of prompt {bad} is {losses[bad]}")
    return losses


def _of_batch(
    model: Model, batch: Prompts, edits: Sequence[Edit], scored: int | None
) -> Float[np.ndarray, " prompt"]:
    inputs: dict[str, Any] = model.inputs(batch)
    longest = max(map(len, batch.ids))
    even = min(map(len, batch.ids)) == longest
    if scored is not None and even and "logits_to_keep" in takes(model.module):
        inputs |= {"logits_to_keep": min(scored, longest - 1) + 1}
    with torch.no_grad():
        logits = model.run(inputs, edits)
    if logits.shape[-1] < model.d_vocab:
        raise OptionError(
            f"{model.name} has no next-token output, so cutting its caches has no measured loss; "
            "give a language model"
        )
    n_rows = logits.shape[1]
    mean = []
    for row, ids in enumerate(batch.ids):
        n = min(scored or len(ids) - 1, len(ids) - 1)
        first = longest - len(ids) if batch.padding == "left" else 0
        end = n_rows if even else first + len(ids)  # one past the place of the last token
        at = slice(end - 1 - n, end - 1)
        wanted = torch.tensor(ids[-n:], device=logits.device)
        mean.append(torch.nn.functional.cross_entropy(logits[row, at].double(), wanted))
    return torch.stack(mean).cpu().numpy()


class CutLosses:
    """Increase of the loss of fixed prompts under cut caches; the uncut loss is measured once.

    Args:
        model: the model.
        prompts: the prompts.
        scored: number of last tokens of a prompt that count; all by default.
        batch_size: prompts per forward pass.
    """

    def __init__(
        self, model: Model, prompts: Prompts, scored: int | None = None, batch_size: int = 16
    ) -> None:
        self.model, self.prompts, self.scored, self.batch_size = model, prompts, scored, batch_size
        self.full = self._run(())

    def __call__(self, windows: Mapping[KVHead, Window]) -> Float[np.ndarray, " prompt"]:
        """Return the increase per prompt, in nats per token; 0 where nothing is cut."""
        if not windows:
            return np.zeros(len(self.prompts))
        return self._run((cut_cache(self.model, windows),)) - self.full

    def _run(self, edits: Sequence[Edit]) -> Float[np.ndarray, " prompt"]:
        return token_losses(
            self.model, self.prompts, edits, scored=self.scored, batch_size=self.batch_size
        )


def require_longer(prompts: Prompts, window: Window) -> None:
    """Raise if no prompt is longer than a window, so that a cut would change nothing."""
    longest = max(map(len, prompts.ids))
    if longest <= window.tokens:
        raise PromptError(
            f"the longest prompt has {longest} tokens, and a cache of {window.sink} first and "
            f"{window.recent} recent ones keeps all of them, so a cut would show no loss; give "
            "longer prompts or a smaller window"
        )
