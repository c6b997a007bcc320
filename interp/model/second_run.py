"""Run beside a generation, with a cache of its own: under other edits, or after another prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.model.edits import Edit
from interp.model.inputs import cache_argument, given_cache, takes
from interp.model.padding import pad_id, position_ids
from interp.model.policy import Step


class SecondRun:
    """Run of the same continuation, step by step, of a decoder.

    Args:
        edits: edits of this run, after those of the generation.
        prompts: prompts in place of those of the generation, one for each; its own by default.
    """

    def __init__(self, edits: Sequence[Edit] = (), prompts: Any = None) -> None:
        self.edits, self.prompts = tuple(edits), prompts
        self._cache: Any = None
        self._done = torch.zeros(0, 0, dtype=torch.long)

    def logits(self, step: Step) -> Float[Tensor, "row d_vocab"]:
        """Return the scores of the next token in this run."""
        if step.model.kind == "encoder-decoder":
            raise OptionError(
                f"{step.model.name} has an encoder; a second run continues prompts of a decoder"
            )
        text, mask = self._text(step)
        if step.number == 0 or not self._follows(text):
            self._cache, self._done = None, text[:, :0]
        module: Any = step.model.module
        known = takes(module)
        new = text[:, self._done.shape[1] :]
        given: dict[str, Any] = {"input_ids": new, "use_cache": True}
        if "attention_mask" in known:
            given["attention_mask"] = mask
        if "position_ids" in known:
            given["position_ids"] = position_ids(mask)[:, -new.shape[1] :]
        if self._cache is None:
            extra = {k: x for k, x in step.inputs.items() if k not in (*given, "position_ids")}
            copies = _copies(len(text), step)
            given |= {
                k: x.repeat_interleave(copies, 0) if isinstance(x, Tensor) else x
                for k, x in extra.items()
            }
        else:
            given[cache_argument(module)] = self._cache
        with step.beside(self.edits), torch.no_grad():
            out = module(**given)
        self._cache, self._done = given_cache(out), text
        return out.logits[:, -1]

    def _text(self, step: Step) -> tuple[Int[Tensor, "row pos"], Int[Tensor, "row pos"]]:
        """Return all ids of this run, and which of them are tokens."""
        copies = _copies(len(step.ids), step)
        if self.prompts is None:
            ids, real = step.inputs["input_ids"], step.inputs.get("attention_mask")
            real = torch.ones_like(ids) if real is None else real
        else:
            given = Prompts.of(self.prompts, step.model)
            if len(given) * copies != len(step.ids):
                raise OptionError(
                    f"{len(given)} prompts for a second run beside {len(step.ids) // copies}; give "
                    "one for each"
                )
            width = max(map(len, given.ids))
            rows = [[pad_id(step.model.config)] * (width - len(p)) + list(p) for p in given.ids]
            ids = torch.tensor(rows, device=step.ids.device)
            lengths = torch.tensor([len(p) for p in given.ids], device=ids.device)
            real = (torch.arange(width, device=ids.device) >= width - lengths[:, None]).long()
        written = step.ids[:, step.start :]
        text = torch.cat([ids.repeat_interleave(copies, 0), written], 1)
        return text, torch.cat([real.repeat_interleave(copies, 0), torch.ones_like(written)], 1)

    def _follows(self, text: Int[Tensor, "row pos"]) -> bool:
        """Return True if the cache holds the beginning of every text, which is put in its row."""
        done = self._done
        if self._cache is None or text.shape[1] != done.shape[1] + 1:
            return False
        begun = text[:, : done.shape[1]]
        if len(done) == len(begun) and torch.equal(begun, done):
            return True
        same = (begun[:, None] == done[None]).all(-1)  # beams were re-ordered
        if len(done) != len(begun) or not bool(same.any(1).all()):
            return False
        self._cache.reorder_cache(same.float().argmax(1))
        return True


def _copies(rows: int, step: Step) -> int:
    """Return how many rows of a step continue one prompt."""
    return rows // len(step.inputs["input_ids"])
