"""Block sparse attention (Zaheer et al. 2020, arXiv:2007.14062) of BigBird, as it runs.

The first and last block see all keys; a block between sees the first and the last block, itself and
its neighbours. Outside training every random block is the first one again, so its keys enter the
softmax once more for each random block: the map is a softmax with these multiplicities. The weights
that the family returns overwrite the repeated keys and do not give its output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from interp.core.errors import PromptError, UnreadableAttention
from interp.model.calls.call import ALL, RowIndex, precise
from interp.model.calls.map_call import MapCall
from interp.model.inputs import given_cache
from interp.model.mixers.mixer import Forward, Mixer, register_mixer


class _WeightedCall(MapCall):
    """Call whose mask is where its softmax counts a key at least once."""

    counts: Any

    def visible(self, rows: RowIndex = ALL) -> Tensor:
        """Return the mask of keys that the blocks of a query hold."""
        return self.counts(self._index(rows)) > 0


@register_mixer
class BlockSparse(Mixer):
    """Attention of BigBird with `attention_type="block_sparse"`."""

    classes = ("BigBirdAttention",)
    needs = (
        "self.query",
        "self.key",
        "self.value",
        "self.num_random_blocks",
        "self.block_size",
        "self.num_attention_heads",
    )
    projection = "output.dense"
    watched = ("self", "self.query", "self.key", "self.value")
    guarded = ("BigBirdModel",)

    def guard(self, module: Any, arguments: Mapping[str, Any]) -> None:
        """Refuse a prompt so short that the model would change its attention for good.

        Raises:
            PromptError: names the length and the way out.
        """
        given = arguments.get("input_ids")
        given = arguments.get("inputs_embeds") if given is None else given
        least = (5 + 2 * module.config.num_random_blocks) * module.config.block_size
        length = least + 1 if given is None else given.shape[1]
        if module.attention_type == "block_sparse" and length <= least:
            raise PromptError(
                f"{type(module).__name__} replaces its block sparse attention by full attention on "
                f"prompts of at most {least} tokens, and this one has {length}; give longer "
                "prompts, or load it with attention_type='original_full'"
            )

    def enter(self, module: Any, arguments: Mapping[str, Any]) -> None:
        """Refuse a decoder, which has no block sparse attention."""
        if given_cache(arguments) is not None:
            raise UnreadableAttention(
                f"{type(module).__name__} was given a cache, which block sparse attention does not "
                "use; run whole prompts with use_cache=False"
            )

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the softmaxes with multiplicity; z is what the module's own attention returned."""
        inner = module.self
        heads, size, again = inner.num_attention_heads, inner.block_size, inner.num_random_blocks
        real = forward.arguments["to_mask"][:, 0, 0] > 0
        padded = real.shape[1]
        length = int(real.any(0).nonzero().max()) + 1

        def split(x: Tensor) -> Tensor:
            return x[:, :length].unflatten(-1, (heads, -1)).transpose(1, 2)

        q, k, v = (split(forward.returned[f"self.{n}"]) for n in ("query", "key", "value"))
        last = padded // size - 1
        real = real[:, :length]

        def counts(rows: Tensor) -> Tensor:
            """Count how often a row's softmax holds each key, `[batch, 1, row, key_pos]`."""
            row = (rows // size)[:, None]
            key = torch.arange(length, device=rows.device) // size
            whole = (row == 0) | (row == last)
            held = whole | ((row - key).abs() <= 1) | (key == 0) | (key == last)
            number = held.long() + again * (~whole & (key == 0))
            return (number * real[:, None] * real[:, rows, None])[:, None]

        def of_rows(rows: Tensor) -> Tensor:
            number = counts(rows)
            scores = precise(q[:, :, rows]) @ precise(k).mT / q.shape[-1] ** 0.5
            weights = (scores + number.log()).softmax(-1)
            return weights.nan_to_num(0.0)  # rows of padding hold nothing

        def to_projection(z: Tensor) -> Tensor:
            flat = z.transpose(1, 2).flatten(2)
            return torch.nn.functional.pad(flat, (0, 0, 0, padded - length))

        call = _WeightedCall(
            v=v,
            z=split(forward.returned["self"][0]),
            kind="block sparse softmax",
            of_rows=of_rows,
            to_projection=to_projection,
            signed=False,
            row_sum="1",
        )
        call.counts = counts
        return call
