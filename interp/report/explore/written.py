"""Texts that a model writes after the latest prompt, with and without some heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.causal.steering.writing import new_tokens, parting, said, token_at
from interp.core.errors import OptionError
from interp.heads.patterns.result import View
from interp.report.explore.requests import GoingOn
from interp.report.printed.writing import parted_sentence

if TYPE_CHECKING:
    from interp.model.edits import Edit
    from interp.model.model import Model
    from interp.report.explore.asked import AskedPrompt

NEW = 20  # tokens that are written


def continuations(
    model: Model, asked: AskedPrompt, edits: Sequence[Edit], going_on: GoingOn
) -> dict[str, Any]:
    """Return both continuations, greedily written; see `Session.write`."""
    if not isinstance(asked.shown, View):
        raise OptionError("only short prompts are written on, whose patterns are stored")
    room = NEW if model.limit is None else model.limit - len(asked.prompts.ids[0]) + 1
    if room < 1:
        raise OptionError(f"the prompt fills all {model.limit} positions of {model.name}")

    def stopping(ids: Tensor, scores: Any, **_: Any) -> Tensor:
        going_on()
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

    def write(edits: Sequence[Edit]) -> tuple[int, tuple[int, ...]]:
        # a mean over the positions of a prompt needs all of them at every step
        whole = {"use_cache": False} if any(edit.of_run for edit in edits) else {}
        return new_tokens(
            model, asked.prompts, min(NEW, room), edits, stopping_criteria=[stopping], **whole
        )

    if not asked.written:
        asked.written.append(write(()))
    start, before = asked.written[0]
    result = {"before": said(model, before), "after": None, "shared": 0, "said": ""}
    if not edits:
        return result
    after = write(edits)[1]
    at = parting(before, after)
    turned = [token_at(model, ids, at) for ids in (before, after)]
    shared = said(model, before if at is None else before[:at])
    position = None if at is None else start + at
    alike = len(before) if at is None else at
    return result | {
        "after": said(model, after),
        "shared": len(shared),
        "said": parted_sentence(alike, position, *turned),
    }
