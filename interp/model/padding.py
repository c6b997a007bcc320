"""Batches of prompts: padding only where it is exact, smaller batches when memory runs out.

Padding must not change a prompt's numbers; whether it does is tested by running the model.
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
from interp.model.inputs import (
    answer_marks,
    context_length,
    is_encoder_decoder,
    least_length,
    ran_out,
    takes,
    text_config,
    vocabulary,
)
from interp.model.precision import float64_or_less

if TYPE_CHECKING:
    from interp.core.prompts import Prompts


LeftPadding = Literal["mask", "position_ids"]

# Rounding of a whole model relative to its largest output: 5e-7 in families of float32 here, and
# more with more layers; eager code has a softmax in float32 in a float64 model, too.
_SAME = {torch.float64: 2e-5, torch.float32: 2e-5}
_SAME_16 = 1e-3  # of 16 bits, whose outputs are equal where positions are


class Padding:
    """Padding of prompts for one model, including a test of whether it changes the numbers.

    The test runs the unedited model, also when the prompts are run inside a visit or an edit.
    """

    def __init__(self, module: nn.Module, config: Any, name: str):
        self.module, self.config, self.name = module, config, name

    @cached_property
    def left(self) -> LeftPadding | None:
        """Input that left padding needs; None where it changes the numbers regardless."""
        with float64_or_less(next(self.module.parameters()).device):
            return aside(lambda: left_padding(self.module))

    @cached_property
    def right(self) -> bool:
        """True if padding on the right leaves a prompt's numbers as they are."""
        with float64_or_less(next(self.module.parameters()).device):
            return aside(lambda: right_padding(self.module))

    def of_same(self, module: nn.Module, name: str) -> Padding:
        """Return the rules of another module of this architecture; findings are carried over."""
        made = Padding(module, self.config, name)
        vars(made).update({k: vars(self)[k] for k in ("left", "right") if k in vars(self)})
        return made

    def changes(self, prompts: Prompts) -> str | None:
        """Explain how padding these prompts would change the model's numbers, or return None."""
        if prompts.decoder is not None:
            reason = self.changes(prompts.decoder)
            if reason is not None:
                return reason
        longest = max(map(len, prompts.ids))
        if min(map(len, prompts.ids)) == longest:
            return None
        if prompts.padding == "left" and self.left is None:
            return (
                f"{self.name} numbers its positions from the first column, or carries padding on "
                "in a state, so padding on the left changes its numbers; use padding='right'"
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
        """Return ids, and for prompts of different lengths the mask and position ids they need.

        Raises:
            PromptError: padding would change the numbers.
        """
        ids, real = prompts.padded(pad_id(self.config))
        inputs = {"input_ids": ids.to(device)}
        inputs |= answer_marks(self.module, inputs["input_ids"])
        if not bool(real.all()):
            reason = self.changes(prompts)
            if reason is not None:
                raise PromptError(reason)
            inputs["attention_mask"] = real.long().to(device)
            if prompts.padding == "left" and self.left == "position_ids":
                inputs["position_ids"] = position_ids(real).to(device)
        return inputs


def pad_id(config: object) -> int:
    """Return the padding token; RoBERTa models derive positions from it, so it must be exact."""
    value = getattr(config, "pad_token_id", None)
    return value if isinstance(value, int) and value >= 0 else 0


def position_ids(real: Tensor) -> Tensor:
    """Return the position of each token within its own prompt, `[batch, pos]`."""
    return (real.long().cumsum(1) - 1).clamp_min(0)


def left_padding(module: nn.Module) -> LeftPadding | None:
    """Find the inputs with which left padding changes no number; None if there are none."""
    tries: list[LeftPadding] = ["mask"]
    if "position_ids" in takes(module):
        tries.append("position_ids")
    return next((name for name in tries if _keeps_numbers(module, "left", name)), None)


def right_padding(module: nn.Module) -> bool:
    """Return True if the mask alone preserves the numbers of a right-padded prompt."""
    return _keeps_numbers(module, "right", "mask")


def longest_padded(config: Any, side: Literal["left", "right"]) -> int | None:
    """Return the length up to which padding is exact; None if length does not matter.

    If an indexer keeps the top-k keys of each query (DeepSeek V3.2), masked keys take part in its
    ranking. If queries are scaled by position (Llama 4), the position is that of the column, and
    the scale first changes at `floor_scale`. If rotary frequencies depend on the length (rope types
    "dynamic" and "longrope"), it is the length of the whole batch, and they first change beyond the
    original training length. Shorter prompts are not affected.
    """
    config = text_config(config)
    most = [getattr(config, "index_topk", None), *_unscaled(config)]
    if side == "left" and getattr(config, "attn_temperature_tuning", False):
        most.append(getattr(config, "floor_scale", 1) - 1)
    return min((x for x in most if isinstance(x, int)), default=None)


def _unscaled(config: Any) -> list[int | None]:
    """Return lengths up to which rotary frequencies keep their trained values, for each set."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    positions = getattr(config, "max_position_embeddings", None)
    found = []
    for each in (
        rope,
        *(x for x in rope.values() if isinstance(x, Mapping)),
    ):  # one set per layer type
        kind = str(each.get("rope_type", each.get("type")))
        if "dynamic" in kind:
            found.append(positions)
        elif kind == "longrope":
            original = getattr(config, "original_max_position_embeddings", None)
            found.append(each.get("original_max_position_embeddings", original) or positions)
    return found


def _keeps_numbers(module: nn.Module, side: Literal["left", "right"], how: LeftPadding) -> bool:
    """Return True if prompts of several lengths have, padded, the numbers that they have alone.

    Every position counts: a convolution with a bias carries padding into the first tokens only.
    """
    rows = _tried(module, side)
    prompts = Prompts(tuple(tuple(row.tolist()) for row in rows), padding=side)
    ids, real = prompts.padded(pad_id(module.config))
    inputs = {"input_ids": ids, "attention_mask": real.long()}
    if how == "position_ids":
        inputs["position_ids"] = position_ids(real)
    together = _output(module, inputs)
    dtype = next(p.dtype for p in module.parameters() if p.is_floating_point())
    for padded, row, mine in zip(together, rows, real.to(together.device), strict=True):
        alone = _output(module, {"input_ids": row[None]})[0]
        got = padded[mine] if padded.dim() == 2 else padded
        allowed = _SAME.get(dtype, _SAME_16) * float(alone.abs().max())
        if float((got - alone).abs().max()) > allowed:
            return False
    return True


def _tried(module: nn.Module, side: Literal["left", "right"]) -> list[Tensor]:
    """Make prompts of up to three lengths, the longest no longer than padding is exact for."""
    config, vocab = module.config, vocabulary(module.config)
    shortest = max(2, least_length(config))
    limits = (shortest + 8, longest_padded(config, side), context_length(module))
    longest = min(x for x in limits if x is not None)
    lengths = sorted({max(shortest, longest - by) for by in (0, 2, 7)}, reverse=True)
    first, different = min(5, vocab - 1), max(vocab - 5, 1)
    return [
        torch.arange(i, i + n * (1 + i), 1 + i) % different + first for i, n in enumerate(lengths)
    ]


def _output(module: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    inputs = {name: x.to(next(module.parameters()).device) for name, x in inputs.items()}
    inputs |= answer_marks(module, inputs["input_ids"])
    if is_encoder_decoder(module):
        inputs["decoder_input_ids"] = inputs["input_ids"]
        if "attention_mask" in inputs:
            inputs["decoder_attention_mask"] = inputs["attention_mask"]
    with torch.no_grad(), inference(module):
        out = module(**inputs)
    return (out if isinstance(out, Tensor) else out[0]).double()


Batch = Prompts | Mapping[str, Tensor]
_Found = TypeVar("_Found")


class LessAtOnce(UserWarning):
    """Warning that memory ran out and the run continues with smaller batches."""


def prompts_in(batch: Batch) -> int:
    """Return the number of prompts in a batch."""
    if isinstance(batch, Prompts):
        return len(batch)
    return max((x.shape[0] for x in batch.values() if isinstance(x, Tensor)), default=1)


def batch_parts(batch: Batch, size: int) -> list[Batch]:
    """Split a batch into parts of at most `size` prompts."""
    if isinstance(batch, Prompts):
        return list(batch.batches(size))
    n = prompts_in(batch)

    def part(x: Any, start: int) -> Any:
        whole = not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] != n
        return x if whole else x[start : start + size]

    return [{k: part(x, start) for k, x in batch.items()} for start in range(0, n, size)]


def tokens_in(batch: Batch) -> int:
    """Return the tokens of a batch, padding included; of pictures the rows of their tensors."""
    if isinstance(batch, Prompts):
        return len(batch) * max(map(len, batch.ids))
    return max(x[..., 0].numel() for x in batch.values())


def backing_off(todo: Sequence[Batch], run: Callable[[Batch], _Found], name: str) -> list[_Found]:
    """Return the results of `run` for every batch, split into as many parts as memory requires.

    Once memory ran out, no later part is larger than the largest that fitted. `run` must have no
    side effects when it fails.

    Raises:
        PromptError: a single prompt does not fit.
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
        # here the failed run's tensors are released: the exception referred to them
        most = n // 2
        waiting.insert(0, batch)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        warnings.warn(
            f"{name}: memory ran out with {n} prompts{_tokens(batch)} at a time; continuing with "
            f"{most}, which changes no number",
            LessAtOnce,
            stacklevel=2,
        )
    return found


def _tokens(batch: Batch) -> str:
    return f" of up to {max(map(len, batch.ids)):,} tokens" if isinstance(batch, Prompts) else ""


class LayersDone:
    """Progress over layers, also where a batch is run in parts of which some are repeated."""

    def __init__(self, advance: Callable[[], None], prompts: int, layers: int, batches: int):
        self.advance, self.prompts, self.layers = advance, prompts, layers
        self.total = layers * batches
        self.reported = self.before = self.part = self.seen = 0

    def begin(self, prompts: int) -> None:
        """Note that a part of this many prompts is about to run."""
        self.part, self.seen = prompts, 0

    def __call__(self) -> None:
        """Report a finished layer of the part."""
        self.seen += 1
        self._tell(self.before + self.part * self.seen / self.layers)

    def end(self) -> None:
        """Note that the part is finished."""
        self.before += self.part
        self._tell(self.before)

    def _tell(self, prompts: float) -> None:
        now = int(self.total * prompts / self.prompts + 1e-6)
        while self.reported < now:
            self.reported += 1
            self.advance()
