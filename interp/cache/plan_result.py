"""Result of a cache plan: what each key-value head keeps, its bytes, and the bound on the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.cache.budgets import require_same, write_file
from interp.cache.bytes import spelled
from interp.cache.losses import CutLosses
from interp.cache.patterns import write_pattern
from interp.cache.windows import KVHead, Window, cut_cache
from interp.core.errors import OptionError, UnknownName
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result import Result
from interp.core.standard_errors import standard_error
from interp.draw.parts import FoundPart, kv_place, result_part

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from interp.cache.small_cache import SmallCache
    from interp.model.edits import Edit
    from interp.model.model import Model

FORMATS = ("duo", "budgets")
BUDGETS = "budgets.json"


@dataclass(frozen=True, eq=False, repr=False)
class CachePlan(Result):
    """Tokens that every key-value head keeps; rows are heads, the score is their number.

    Args:
        kv: the key-value heads.
        windows: what each keeps; None for everything.
        sizes: bytes of each cache under the plan.
        full_sizes: bytes of each full cache.
        alone: measured loss of each head's cut alone, nats per token, on the search prompts.
        length: tokens for which bytes are counted.
        bound: the loss of a new prompt is at most this, with probability `level`.
        calibration: loss of every calibration prompt under the plan.
        held_out: loss of every prompt that neither chose nor calibrated the plan.
    """

    kv: tuple[KVHead, ...]
    windows: tuple[Window | None, ...]
    sizes: tuple[int, ...]
    full_sizes: tuple[int, ...]
    alone: tuple[float, ...]
    length: int
    bound: float
    level: float
    calibration: Float[np.ndarray, " prompt"]
    held_out: Float[np.ndarray, " prompt"]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "a plan is one choice; `held_out` has its loss on every held-out prompt"
    _units = ("stack", "layer", "kv_head")
    _holds = (KVHead, Window)
    _per_row = ("kv", "windows", "sizes", "full_sizes", "alone")

    @property
    def bytes(self) -> int:
        """Bytes of the cache under the plan."""
        return sum(self.sizes)

    @property
    def full_bytes(self) -> int:
        """Bytes of the full cache."""
        return sum(self.full_sizes)

    @property
    def loss(self) -> tuple[float, float]:
        """Mean loss on the held-out prompts and its standard error, in nats per token."""
        return float(self.held_out.mean()), float(standard_error(self.held_out))

    def cuts(self) -> dict[KVHead, Window]:
        """Return the heads whose cache is cut, with what they keep."""
        pairs = zip(self.kv, self.windows, strict=True)
        return {head: window for head, window in pairs if window is not None}

    def edit(self, model: Model) -> Edit:
        """Return the edit that runs a model under this plan.

        Raises:
            OptionError: the plan was made for another model, or cuts nothing.
        """
        self.require(model)
        return cut_cache(model, self.cuts())

    def cache(self, model: Model) -> SmallCache:
        """Return an empty cache for `generate(past_key_values=...)` that holds what the plan keeps.

        Every token, those of the prompt included, sees what it sees under `edit`.

        Raises:
            OptionError: the plan was made for another model, or caches of its family are not
                tested.
        """
        from interp.cache.small_cache import small_cache

        self.require(model)
        return small_cache(model, self.cuts())

    def require(self, model: Model) -> None:
        """Raise if the plan was made for other weights.

        Raises:
            OptionError: the hashes differ.
        """
        content_hash = str(self.provenance.get("content_hash", ""))
        require_same(str(self.provenance.get("model_id")), content_hash, model)

    def losses(self, model: Model, prompts: Any, batch_size: int = 16) -> np.ndarray:
        """Return the increase of the loss under the plan on other prompts, in nats per token.

        Raises:
            OptionError: the plan was made for another model.
            PromptError: the prompts do not fit the model.
        """
        self.require(model)
        scored = dict(self.provenance.get("options", {})).get("scored")
        return CutLosses(model, Prompts.of(prompts, model), scored, batch_size)(self.cuts())

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame([h._asdict() for h in self.kv], columns=list(self._units))
        tokens = [self.length if w is None else min(self.length, w.tokens) for w in self.windows]
        return frame.assign(
            metric="kept tokens",
            score=[float(x) for x in tokens],
            unit="tokens",
            keeps=["all" if w is None else str(w) for w in self.windows],
            sink=[-1 if w is None else w.sink for w in self.windows],
            recent=[-1 if w is None else w.recent for w in self.windows],
            bytes=list(self.sizes),
            full_bytes=list(self.full_sizes),
            loss_alone=list(self.alone),
        )

    def export(self, folder: str | PathLike, form: str = "duo") -> Path:
        """Write the plan for DuoAttention ("duo") or as one JSON ("budgets"); return the folder.

        "duo" writes `full_attention_heads.tsv` (1 for a full cache, 0 for a cut one) and
        `config.json`, and needs one window for all cut heads. "budgets" writes `budgets.json`, the
        file of `write_budgets`; where there is one window, with the settings under which kvpress's
        `DuoAttentionPress` keeps the same tokens.

        Raises:
            UnknownName: the form is not known.
            OptionError: the plan has several windows, or none, and the form is "duo".
            StoreError: the folder cannot be written.
        """
        if form not in FORMATS:
            raise UnknownName("export format", form, FORMATS)
        folder = Path(folder)
        cuts = self.cuts()
        one = set(cuts.values())
        if form == "duo":
            if len(one) != 1:
                raise OptionError(
                    f"the plan has {len(one)} windows and DuoAttention's layout has one for all "
                    "cut heads; make a plan with recent=(N,), or export its budgets"
                )
            gates = [1.0 if w is None else 0.0 for w in self.windows]
            return write_pattern(folder, self.kv, gates, one.pop())
        more: dict[str, Any] = {}
        if len(one) == 1 and next(iter(one)).recent > 1:
            window = one.pop()
            more["DuoAttentionPress"] = {
                "head_compression_ratio": len(cuts) / len(self.kv),
                "sink_size": window.sink,
                "recent_size": window.recent - 1,
            }
        name, content_hash = (str(self.provenance.get(x)) for x in ("model_id", "content_hash"))
        write_file(folder / BUDGETS, name, content_hash, self.kv, cuts, more)
        return folder

    def press(self) -> Any:
        """Return the plan as a press of kvpress, which hides keys once a prompt has been read.

        Raises:
            OptionError: kvpress is not installed.
        """
        from interp.cache.press import plan_press

        return plan_press(self)

    def masked_keys(self, layer: int, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the cached keys of a layer that the next token must not see.

        Batch, key-value head and position of each, as kvpress reads `module.masked_key_indices`.

        Args:
            layer: the layer.
            keys: its cached keys, `[batch, kv_head, token, d_head]`, without the next token.
        """
        hidden = torch.zeros(keys.shape[:3], dtype=torch.bool, device=keys.device)
        for head, window in self.cuts().items():
            if head.layer == layer:
                end = max(window.sink, keys.shape[2] - window.recent + 1)
                hidden[:, head.kv_head, window.sink : end] = True
        batch, head, token = torch.nonzero(hidden, as_tuple=True)
        return batch, head, token

    def summary(self) -> str:
        """Return the plan in one paragraph: bytes, heads, loss and bound."""
        mean, error = self.loss
        share = self.bytes / self.full_bytes
        return (
            f"{spelled(self.bytes)} of {spelled(self.full_bytes)} ({share:.0%}) at {self.length:,} "
            f"tokens; {len(self.cuts())} of {len(self.kv)} key-value heads are cut. The loss of a "
            f"new prompt rises by at most {self.bound:.4g} nats per token with probability "
            f"{self.level:g} ({len(self.calibration)} calibration prompts); on "
            f"{len(self.held_out)} held-out prompts the mean is {mean:+.4f} +- {error:.4f}, and "
            f"{float((self.held_out <= self.bound).mean()):.0%} are within the bound."
        )

    def __repr__(self) -> str:
        return f"CachePlan: {self.summary()}"


def cache_plan_part(found: CachePlan) -> FoundPart:
    """Return which heads keep their whole cache under a plan, and the bound on the loss."""
    frame: Any = found.to_pandas()
    notes = {}
    for row in frame.to_dict("records"):
        tokens = (
            "all tokens" if row["keeps"] == "all" else f"{row['score']:g} tokens ({row['keeps']})"
        )
        notes[kv_place(row)] = (
            f"The cache plan keeps {tokens}: {row['bytes']:,} of {row['full_bytes']:,} bytes at "
            f"{found.length:,} tokens"
        )
    return result_part(found, "cache", "Cache plan", found.summary(), by_kv=notes)


present(CachePlan, part=cache_plan_part)
