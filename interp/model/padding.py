"""Batches of prompts: padding where it changes no number, fewer prompts where memory runs out.

Padding must not change a prompt's numbers: where it does is found by trying it on the model.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.model.hooks.inference import aside, inference
from interp.model.inputs import is_encoder_decoder, ran_out, takes, text_config, vocabulary

if TYPE_CHECKING:
    from interp.core.prompts import Prompts


LeftPadding = Literal["mask", "position_ids"]

_SAME = 1e-3  # of the largest entry; positions that are off by two change far more


class Padding:
    """Pads prompts for one model, and knows where that would change their numbers.

    It is tried on the model as it is, also when the prompts are run inside a visit or an edit.
    """

    def __init__(self, module: nn.Module, config: Any, name: str):
        self.module, self.config, self.name = module, config, name

    @cached_property
    def left(self) -> LeftPadding | None:
        """The input that left padding needs; None where it changes the numbers regardless."""
        return aside(lambda: left_padding(self.module))

    @cached_property
    def right(self) -> bool:
        """True if padding on the right leaves a prompt's numbers as they are."""
        return aside(lambda: right_padding(self.module))

    def changes(self, prompts: Prompts) -> str | None:
        """Why padding these prompts would change the model's numbers; None where it does not."""
        longest = max(map(len, prompts.ids))
        if min(map(len, prompts.ids)) == longest:
            return None
        if prompts.padding == "left" and self.left is None:
            return (
                f"{self.name} numbers its positions from the first column, so padding on the left "
                "changes its numbers; use padding='right'"
            )
        most = longest_padded(self.config, prompts.padding)
        short = most is None or longest <= most
        if short and (prompts.padding == "left" or self.right):
            return None
        return (
            f"{self.name} changes a prompt's numbers when it is padded on the {prompts.padding}; "
            "run prompts of one length together"
        )

    def inputs(self, prompts: Prompts, device: torch.device) -> dict[str, Tensor]:
        """Ids, and for prompts of different lengths the mask and what else keeps their numbers.

        Raises:
            PromptError: padding would change the numbers.
        """
        ids, real = prompts.padded(pad_id(self.config))
        inputs = {"input_ids": ids.to(device)}
        if not bool(real.all()):
            reason = self.changes(prompts)
            if reason is not None:
                raise PromptError(reason)
            inputs["attention_mask"] = real.long().to(device)
            if prompts.padding == "left" and self.left == "position_ids":
                inputs["position_ids"] = position_ids(real).to(device)
        return inputs


def pad_id(config: object) -> int:
    """The padding token; RoBERTa's kind counts positions by it, so another id would move them."""
    value = getattr(config, "pad_token_id", None)
    return value if isinstance(value, int) and value >= 0 else 0


def position_ids(real: Tensor) -> Tensor:
    """The place of each token in its own prompt, `[batch, pos]`."""
    return (real.long().cumsum(1) - 1).clamp_min(0)


def left_padding(module: nn.Module) -> LeftPadding | None:
    """What must go with the ids so that left padding changes nothing; None if nothing helps."""
    ids, padding = _tried(module)
    padded = torch.cat([padding, ids], 1)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]], device=ids.device)
    alone = _row(module, {"input_ids": ids}, -1)
    tries: dict[LeftPadding, dict[str, Tensor]] = {"mask": {}}
    if "position_ids" in takes(module):
        tries["position_ids"] = {"position_ids": position_ids(mask)}
    for name, more in tries.items():
        got = _row(module, {"input_ids": padded, "attention_mask": mask} | more, -1)
        if _same(got, alone):
            return name
    return None


def right_padding(module: nn.Module) -> bool:
    """True if the mask alone keeps the numbers of a prompt that is padded on the right."""
    ids, padding = _tried(module)
    padded = torch.cat([ids, padding], 1)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]], device=ids.device)
    alone = _row(module, {"input_ids": ids}, -1)
    last = ids.shape[1] - 1
    return _same(_row(module, {"input_ids": padded, "attention_mask": mask}, last), alone)


def longest_padded(config: Any, side: Literal["left", "right"]) -> int | None:
    """Tokens up to which padding is known to change nothing; None where length does not matter.

    Where an indexer keeps the top k keys of each query (DeepSeek V3.2), masked keys take part in
    its ranking. Where queries are scaled by their position (Llama 4), the position is the column,
    and the scale first changes at `floor_scale`. Where rotary frequencies follow the length (rope
    types "dynamic" and "longrope"), it is that of the whole batch, and they first change beyond the
    positions of the first training. Shorter prompts meet none of these.
    """
    config = text_config(config)
    most = [getattr(config, "index_topk", None), *_unscaled(config)]
    if side == "left" and getattr(config, "attn_temperature_tuning", False):
        most.append(getattr(config, "floor_scale", 1) - 1)
    return min((x for x in most if isinstance(x, int)), default=None)


def _unscaled(config: Any) -> list[int | None]:
    """Positions up to which rotary frequencies are those of training, per set that can change."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    positions = getattr(config, "max_position_embeddings", None)
    found = []
    for each in (rope, *(x for x in rope.values() if isinstance(x, Mapping))):  # one per layer type
        kind = str(each.get("rope_type", each.get("type")))
        if "dynamic" in kind:
            found.append(positions)
        elif kind == "longrope":
            original = getattr(config, "original_max_position_embeddings", None)
            found.append(each.get("original_max_position_embeddings", original) or positions)
    return found


def _tried(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Four tokens and two of padding, one row each."""
    device, vocab = next(module.parameters()).device, vocabulary(module.config)
    ids = torch.arange(4) % max(vocab - 5, 1) + min(5, vocab - 1)
    return ids[None].to(device), torch.full((1, 2), pad_id(module.config), device=device)


def _same(got: Tensor, alone: Tensor) -> bool:
    return float((got - alone).abs().max()) <= _SAME * float(alone.abs().max())


def _row(module: nn.Module, inputs: dict[str, Tensor], position: int) -> Tensor:
    if is_encoder_decoder(module):
        inputs = inputs | {"decoder_input_ids": inputs["input_ids"]}
        if "attention_mask" in inputs:
            inputs["decoder_attention_mask"] = inputs["attention_mask"]
    with torch.no_grad(), inference(module):
        out = module(**inputs)
    found = (out if isinstance(out, Tensor) else out[0]).double()
    return found[:, position] if found.dim() == 3 else found


Batch = Prompts | Mapping[str, Tensor]
_Found = TypeVar("_Found")


class LessAtOnce(UserWarning):
    """Memory ran out, and the run goes on with fewer prompts at a time."""


def prompts_in(batch: Batch) -> int:
    """How many prompts run at once."""
    if isinstance(batch, Prompts):
        return len(batch)
    return max((x.shape[0] for x in batch.values() if isinstance(x, Tensor)), default=1)


def batch_parts(batch: Batch, size: int) -> list[Batch]:
    """A batch in parts of at most `size` prompts."""
    if isinstance(batch, Prompts):
        return list(batch.batches(size))
    n = prompts_in(batch)

    def part(x: Any, start: int) -> Any:
        whole = not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] != n
        return x if whole else x[start : start + size]

    return [{k: part(x, start) for k, x in batch.items()} for start in range(0, n, size)]


def backing_off(todo: Sequence[Batch], run: Callable[[Batch], _Found], name: str) -> list[_Found]:
    """What `run` gives for every batch, each in as many parts as memory asks for.

    Once memory ran out, no later part is larger than what fitted. `run` must leave nothing behind
    when it fails.

    Raises:
        PromptError: one prompt alone does not fit.
    """
    found: list[_Found] = []
    waiting = list(todo)
    most: int | None = None
    while waiting:
        batch = waiting.pop(0)
        n = prompts_in(batch)
        if most is not None and n > most:
            waiting[:0] = batch_parts(batch, most)
            continue
        try:
            found.append(run(batch))
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            if n == 1:
                raise PromptError(
                    f"{name}: memory ran out with one prompt{_tokens(batch)} at a time "
                    f"({str(error).strip().partition(chr(10))[0][:120]}); shorten it, use "
                    "engine='streamed' or a smaller dtype"
                ) from error
        else:
            continue
        # here the failed run's tensors are let go: the error held them
        most = n // 2
        waiting.insert(0, batch)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        warnings.warn(
            f"{name}: memory ran out with {n} prompts{_tokens(batch)} at a time; going on with "
            f"{most}, which changes no number",
            LessAtOnce,
            stacklevel=2,
        )
    return found


def _tokens(batch: Batch) -> str:
    return f" of up to {max(map(len, batch.ids)):,} tokens" if isinstance(batch, Prompts) else ""


class LayersDone:
    """Tells of layers done, also where a batch is done in parts of which some had to be redone."""

    def __init__(self, advance: Callable[[], None], prompts: int, layers: int, batches: int):
        self.advance, self.prompts, self.layers = advance, prompts, layers
        self.total = layers * batches
        self.told = self.before = self.part = self.seen = 0

    def begin(self, prompts: int) -> None:
        """A part of so many prompts is about to run."""
        self.part, self.seen = prompts, 0

    def __call__(self) -> None:
        """A layer of the part is done."""
        self.seen += 1
        self._tell(self.before + self.part * self.seen / self.layers)

    def end(self) -> None:
        """The part is done."""
        self.before += self.part
        self._tell(self.before)

    def _tell(self, prompts: float) -> None:
        now = int(self.total * prompts / self.prompts + 1e-6)
        while self.told < now:
            self.told += 1
            self.advance()
