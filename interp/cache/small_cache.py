"""A cache of transformers whose layers and heads keep what a plan says, and free the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from interp.cache.budgets import Budget, read_budgets, require_kv_heads
from interp.cache.kept_attention import KeptCall
from interp.cache.kept_tokens import KeptGroup
from interp.cache.windows import KVHead, Window
from interp.core.errors import OptionError
from interp.model.model_argument import one_model

if TYPE_CHECKING:
    from os import PathLike

    from interp.model.model import Model

# families whose decode steps are tested against a masked full cache
FAMILIES = (
    "gemma2",
    "gemma3_text",
    "gpt2",
    "gpt_neox",
    "llama",
    "mistral",
    "olmo2",
    "phi",
    "phi3",
    "qwen2",
    "qwen3",
)
IMPLEMENTATIONS = ("eager", "sdpa")


def small_cache(model: Any, windows: Mapping[KVHead, Window | None] | str | PathLike) -> SmallCache:
    """Make a cache for `generate(past_key_values=...)` whose heads keep only what they are given.

    From transformers 5.24 on the argument of `generate` is `cache`.

    A `Window` is applied to every token, those of the prompt included, as `cut_cache` does; so a
    prompt may come in chunks. A `Budget` with a tail lets its heads read the prompt in full and
    cuts afterwards; so the prompt must come in one call.

    Args:
        model: a decoder of transformers, of a family in `FAMILIES`.
        windows: what each key-value head keeps; heads that are not named keep everything. Or the
            file of `write_budgets`, or of a plan that was exported as "budgets".

    Returns:
        An empty `Cache`; `reset` empties it for another prompt, and `bytes` measures it.

    Raises:
        StoreError: the file cannot be read.
        OptionError: the file is of other weights, or the family or the attention implementation is
            not supported.
        UnknownName: a key-value head does not exist.
    """
    read = one_model(model)
    _require_family(read)
    budgets = windows if isinstance(windows, Mapping) else read_budgets(windows, read)
    heads = require_kv_heads(read, budgets)
    config: Any = read.module.config
    full = DynamicCache(config=config)  # knows which layers slide by themselves
    layers: list[Any] = []
    for place, (layer, full_layer) in enumerate(
        zip(sorted({h.layer for h in heads}), full.layers, strict=True)
    ):
        reach = getattr(full_layer, "sliding_window", None)
        mine = {h.kv_head: _within(budgets.get(h), reach) for h in heads if h.layer == layer}
        layers.append(BudgetLayer(mine, place))
    return SmallCache(layers=layers)


def _require_family(model: Model) -> None:
    """Raise if the cache of a model is not one that is tested."""
    config: Any = model.module.config
    kind, used = str(config.model_type), str(getattr(config, "_attn_implementation", ""))
    if kind not in FAMILIES:
        raise OptionError(
            f"{model.name} is of the family {kind}, for which small caches are not tested; known "
            f"families: {', '.join(FAMILIES)}"
        )
    if used not in IMPLEMENTATIONS:
        raise OptionError(
            f"{model.name} runs the attention {used!r}; a small cache works with "
            f"{' and '.join(IMPLEMENTATIONS)}: load the model with attention='sdpa'"
        )


def _within(window: Window | None, reach: int | None) -> Budget | None:
    """Return a budget that keeps nothing beyond the sliding window of its layer."""
    if reach is None:
        return None if window is None else Budget.of(window)
    if window is None or window.recent >= reach:
        return Budget(0, reach)
    return Budget.of(window)


class SmallCache(Cache):
    """Cache of transformers whose layers are `BudgetLayer`s."""

    @property
    def bytes(self) -> int:
        """Bytes of memory that its tensors hold, as storage: a view would hold its whole tensor."""
        held: dict[int, int] = {}
        for layer in self.layers:
            for group in cast(BudgetLayer, layer).groups:
                for x in group.tensors():
                    storage = x.untyped_storage()
                    held[storage.data_ptr()] = storage.nbytes()
        return sum(held.values())


class BudgetLayer(CacheLayerMixin):
    """One layer of a small cache: groups of heads with one budget each.

    Args:
        budgets: what each key-value head keeps; None for everything.
        place: index of the layer, for messages.
    """

    supports_early_init = False
    is_sliding = False

    def __init__(self, budgets: Mapping[int, Budget | None], place: int) -> None:
        super().__init__()
        self.budgets, self.place = dict(budgets), place
        self.reset()

    def reset(self) -> None:
        """Forget every token."""
        self.groups = [
            KeptGroup([h for h, b in self.budgets.items() if b == budget], budget)
            for budget in dict.fromkeys(self.budgets.values())
        ]
        self.seen, self.rows = 0, 0
        self.first: Tensor | None = None
        self.is_initialized = False

    def lazy_initialization(self, key_states: Tensor, _values: Tensor) -> None:
        """Set the number of prompts from the first keys."""
        self.rows, self.is_initialized = len(key_states), True

    def update(
        self,
        key_states: Float[Tensor, "b kv q d"],
        value_states: Tensor,
        *_args: Any,
        **_kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        """Take new keys and values, and return stand-ins for those that attention may see."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, heads, new = key_states.shape[:3]
        if rows != self.rows:
            raise OptionError(
                f"the cache holds {self.rows} prompts and was given {rows}; call its reset() "
                "before another batch"
            )
        if heads != len(self.budgets):
            raise OptionError(
                f"layer {self.place} has {heads} key-value heads and this cache was made for "
                f"{len(self.budgets)}; make a cache for this model"
            )
        tails = any(g.budget is not None and g.budget.reads_prompt for g in self.groups)
        if self.seen and new > 1 and tails:
            raise OptionError(
                f"{new} further tokens in one call: heads with a tail (top or bits) are cut when "
                "the prompt has been read, so give the whole prompt in the first call"
            )
        step = KeptCall(self.groups, key_states, value_states, self.seen, self.first, self._done)
        self.seen += new
        keys, values = step.stand_ins
        return keys, values

    def _done(self, first: Tensor | None) -> None:
        self.first = first

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of all tokens: the mask is read at the positions that are kept."""
        return self.seen + query_length, 0

    def get_seq_length(self) -> int:
        """Return the number of tokens seen."""
        return self.seen

    def get_max_length(self) -> int:
        """Return -1: there is no maximum."""
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse to go back: tokens that left are gone."""
        if tokens_to_remove:
            raise OptionError(
                "a small cache cannot be cropped: tokens that left it are gone; generate without "
                "an assistant"
            )

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the prompts, for beam search."""
        self._over_batch(lambda x: x.index_select(0, beam_idx.to(x.device)), len(beam_idx))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every prompt."""
        self._over_batch(lambda x: x.repeat_interleave(repeats, 0), self.rows * repeats)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some of the prompts."""
        rows = torch.arange(self.rows)[indices.cpu()]
        self._over_batch(lambda x: x[rows.to(x.device)], len(rows))

    def _over_batch(self, change: Callable[[Tensor], Tensor], rows: int) -> None:
        for group in self.groups:
            group.over_batch(change, self.rows)
        self.first = None if self.first is None else change(self.first)
        self.rows = rows
