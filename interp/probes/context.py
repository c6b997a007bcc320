"""Features of heads on prompts with a context: Lookback ratio, and attention of the last row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.model.model_argument import takes_model
from interp.probes.features import HeadFeatures, about_model

if TYPE_CHECKING:
    from torch import Tensor

    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model

ROWS = 2**20  # weights of a block of rows


@dataclass(frozen=True)
class ContextItem:
    """Token ids of a prompt, and the positions of its parts.

    Args:
        ids: the whole prompt.
        start: first token after the context: of the response with its cue, or of the question.
        parts: positions (start, end) that are items: spans of the response, or sentences of the
            context.
    """

    ids: tuple[int, ...]
    start: int
    parts: tuple[tuple[int, int], ...]


@takes_model
def lookback_features(
    model: Model, items: Sequence[ContextItem]
) -> tuple[HeadFeatures, np.ndarray]:
    """Compute the Lookback ratio of every head, averaged over each part of the responses.

    For each token of a response: the mean attention per token of the context (before `start`),
    divided by the sum of this and the mean attention per token from `start` on, as far as it is
    seen. 0.5 for even attention, 1 for attention on the context alone. Rows without either are
    0.5.

    Returns:
        The features of all parts, item by item, and the item of each part.

    Raises:
        PromptError: there is no context, or a part does not lie in the response.

    Unit: share, 0 to 1.

    Cost: One forward pass per item; only rows of the response are computed.

    Null: Shuffled labels, by `train_probe`.

    Not for: responses of different lengths with different labels; the ratio depends on the length.

    Reference: Chuang et al. 2024, "Lookback Lens" (arXiv 2407.07071), whose code counts the cue of
        the response to what is new, so that this is never empty.
    """
    for i, item in enumerate(items):
        if not 0 < item.start < len(item.ids):
            raise PromptError(
                f"item {i}: the context ends at {item.start}; give a context and a response"
            )
        _require_parts(i, item, item.start, len(item.ids), "the response")

    def read(call: Call, item: ContextItem) -> Tensor:
        ratios = []
        for rows in _blocks(call, item.start, len(item.ids)):
            pattern = call.pattern(rows)[0].double().abs()
            at = torch.arange(rows.start, rows.stop, device=pattern.device)
            old = pattern[..., : item.start].sum(-1) / item.start
            new = pattern[..., item.start :].sum(-1) / (at - item.start + 1)
            whole = old + new
            ratios.append(torch.where(whole > 0, old / whole.clamp_min(1e-300), 0.5))
        by_token = torch.cat(ratios, -1)
        spans = [slice(a - item.start, b - item.start) for a, b in item.parts]
        return torch.stack([by_token[:, span].mean(-1) for span in spans])

    return _features(model, items, read, "lookback ratio")


@takes_model
def last_row_features(
    model: Model, items: Sequence[ContextItem]
) -> tuple[HeadFeatures, np.ndarray]:
    """Compute the attention of the last token on each part of the context, per token.

    The attention of the last token is renormalised over the context (before `start`), then
    averaged over the tokens of a part: 1 over the tokens of the context for even attention. Only
    the last row is computed.

    Returns:
        The features of all parts, item by item, and the item of each part.

    Raises:
        PromptError: there is no context, or a part does not lie in it.

    Unit: share of the attention per token.

    Cost: One forward pass per item; one row per head is computed.

    Null: Shuffled labels, by `train_probe`.

    Not for: sentences whose place tells their label: heads attend more to near ones.

    Reference: Zhang et al. 2025, "Sentinel" (arXiv 2505.23277).
    """
    for i, item in enumerate(items):
        if not 0 < item.start <= len(item.ids):
            raise PromptError(f"item {i}: the context ends at {item.start}; give a context")
        _require_parts(i, item, 0, item.start, "the context")

    def read(call: Call, item: ContextItem) -> Tensor:
        row = call.pattern(slice(len(item.ids) - 1, len(item.ids)))[0, :, 0].double().abs()
        row = row[:, : item.start]
        total = row.sum(-1, keepdim=True)
        row = torch.where(total > 0, row / total.clamp_min(1e-300), 1 / item.start)
        return torch.stack([row[:, a:b].mean(-1) for a, b in item.parts])

    return _features(model, items, read, "attention of the last row")


def _require_parts(i: int, item: ContextItem, low: int, high: int, where: str) -> None:
    if not item.parts:
        raise PromptError(f"item {i} has no parts; give at least one span of tokens")
    for a, b in item.parts:
        if not low <= a < b <= high:
            raise PromptError(
                f"item {i}: the part {a} to {b} is empty or not in {where}, {low} to {high}"
            )


def _blocks(call: Call, start: int, end: int) -> list[slice]:
    size = max(1, ROWS // (call.n_heads * call.v.shape[2]))
    return [slice(at, min(at + size, end)) for at in range(start, end, size)]


def _features(
    model: Model,
    items: Sequence[ContextItem],
    read: Callable[[Call, ContextItem], Tensor],
    kind: str,
) -> tuple[HeadFeatures, np.ndarray]:
    if not items:
        raise PromptError("no items given")
    prompts = Prompts(tuple(item.ids for item in items))
    prompts.check(model)
    rows: dict[Site, list[np.ndarray]] = {}
    for item in items:

        def visit(site: Site, call: Call, real: Tensor, item: ContextItem = item) -> None:
            model.require_finite(call, site)
            if site.stack != "cross":
                rows.setdefault(site, []).append(read(call, item).cpu().numpy())

        model.read(Prompts((item.ids,)), visit, last=1, streamed=True)
    places = tuple((s.stack, s.layer, h) for s in rows for h in range(s.n_heads))
    x = np.concatenate([np.concatenate(blocks) for blocks in rows.values()], 1)
    which = np.repeat(np.arange(len(items)), [len(item.parts) for item in items])
    ids = tuple(f"{prompts.prompt_ids[i]} {n}" for n, i in enumerate(which))
    return HeadFeatures(x, places, kind, ids, about_model(model)), which
