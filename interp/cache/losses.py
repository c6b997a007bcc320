"""Measured loss of prompts under cut caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.cache.windows import KVHead, Window, cut_cache
from interp.causal.game.replay import CleanRun, Reuse, capture_for_replay, restore_blocks
from interp.causal.game.verify import reuse_of
from interp.core.errors import NonFiniteError, OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.protocols import Progress, silent
from interp.model.edits import Edit
from interp.model.inputs import takes

if TYPE_CHECKING:
    from interp.model.model import Model

CLEAN_BYTES = 2**30  # of the activations of a batch that are kept to be restored


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
    _require_finite(model, losses)
    return losses


def _require_finite(model: Model, losses: Float[np.ndarray, " prompt"]) -> None:
    if not np.isfinite(losses).all():
        bad = int(np.flatnonzero(~np.isfinite(losses))[0])
        raise NonFiniteError(f"{model.name}: the loss of prompt {bad} is {losses[bad]}")


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
        prompts: the prompts; those of similar length run together.
        scored: number of last tokens of a prompt that count; all by default.
        batch_size: prompts per forward pass.
    """

    def __init__(
        self, model: Model, prompts: Prompts, scored: int | None = None, batch_size: int = 16
    ) -> None:
        self.model, self.scored, self.batch_size = model, scored, batch_size
        self.order = np.argsort([len(ids) for ids in prompts.ids], kind="stable")
        self.prompts = prompts.part(self.order.tolist())
        losses = token_losses(model, self.prompts, scored=scored, batch_size=batch_size)
        self.full = losses[np.argsort(self.order)]

    def __call__(self, windows: Mapping[KVHead, Window]) -> Float[np.ndarray, " prompt"]:
        """Return the increase per prompt, in nats per token; 0 where nothing is cut."""
        return self.each([windows])[0]

    def each(
        self,
        cuts: Sequence[Mapping[KVHead, Window]],
        name: str = "",
        progress: Progress = silent,
    ) -> Float[np.ndarray, "cut prompt"]:
        """Return the increases of several cuts; blocks below the first cut head run once."""
        losses = np.tile(self.full[self.order], (len(cuts), 1))
        known = reuse_of(self.model) if len(cuts) > 1 else Reuse()
        reuse = replace(known, attention={}, unembedding=None)
        block_of = {(site.stack, site.layer): block for site, block in reuse.block_of.items()}
        first = [min((block_of.get(head[:2], 0) for head in cut), default=0) for cut in cuts]
        edits = [[cut_cache(self.model, cut)] if cut else [] for cut in cuts]
        kept = [min((window.tokens for window in cut.values()), default=np.inf) for cut in cuts]
        done = 0
        for batch in self.model.batches(self.prompts, self.batch_size):
            rows = slice(done, done + len(batch))
            lengths = np.array([len(ids) for ids in batch.ids])
            done += len(batch)
            clean = self._clean(batch, reuse) if any(first) else None
            for at, block in enumerate(first):
                longer = lengths > kept[at]  # of the others the cut changes nothing
                if longer.any():
                    with ExitStack() as stack:
                        if clean is not None:
                            restore_blocks(stack, self.model, clean, reuse, block, 1)
                        cut = _of_batch(self.model, batch, edits[at], self.scored)
                    losses[at, rows] = np.where(longer, cut, losses[at, rows])
                ran = at * len(batch) + done * len(cuts) - len(batch) * (len(cuts) - 1)
                progress(name, ran, len(cuts) * len(self.prompts))
        for each in losses:
            _require_finite(self.model, each[np.argsort(self.order)])
        return losses[:, np.argsort(self.order)] - self.full

    def _clean(self, batch: Prompts, reuse: Reuse) -> CleanRun | None:
        """Run a batch as it is, and keep what its blocks return if that is not too much."""
        values = len(batch) * max(map(len, batch.ids)) * len(reuse.blocks) * self.model.d_model
        if not 0 < 4 * values <= CLEAN_BYTES:
            return None
        return capture_for_replay(self.model, self.model.inputs(batch), reuse)


def require_longer(prompts: Prompts, window: Window) -> None:
    """Raise if no prompt is longer than a window, so that a cut would change nothing."""
    longest = max(map(len, prompts.ids))
    if longest <= window.tokens:
        raise PromptError(
            f"the longest prompt has {longest} tokens, and a cache of {window.sink} first and "
            f"{window.recent} recent ones keeps all of them, so a cut would show no loss; give "
            "longer prompts or a smaller window"
        )
