"""Padding of prompts, only where it is exact.

It must not change a prompt's numbers; whether it does is tested by running the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.model.each_batch import backing_off
from interp.model.hooks.inference import aside, inference
from interp.model.inputs import (
    answer_marks,
    context_length,
    is_encoder_decoder,
    least_length,
    position_limit,
    takes,
    vocabulary,
)
from interp.model.precision import float64_or_less

PaddingSide = Literal["left", "right"]
Way = Literal["mask", "position_ids"]
"""Input that padding needs, beside the ids."""

# Rounding of a whole model relative to its largest output: 5e-7 in families of float32 here, and
# more with more layers; eager code has a softmax in float32 in a float64 model, too.
_SAME = {torch.float64: 2e-5, torch.float32: 2e-5}
_ROUNDINGS = 8  # of 16 bits, which sum in another order over another number of columns

_SHORT = 72  # columns up to which one trial serves for all; 64 is the usual block of recurrences
_BEYOND = 8  # columns by which a trial is longer than a number of the config
_MOST = 4104  # columns of the longest trial; longer prompts are not padded where one is needed
_WRITTEN = 4  # tokens that a trial of generation writes


_Found = TypeVar("_Found")


class Padding:
    """Padding of prompts for one model, including a test of whether it changes the numbers.

    The test runs the unedited model, also when the prompts are run inside a visit or an edit. Some
    families are exact only up to a length (a window, a number of kept keys, the trained context),
    so it is repeated for longer prompts; see `lengths_to_try`.
    """

    def __init__(self, module: nn.Module, config: Any, name: str):
        self.module, self.config, self.name = module, config, name
        self._tried: dict[tuple[PaddingSide, bool], dict[int, Way | None]] = {}

    def way(self, side: PaddingSide, longest: int, *, writing: bool = False) -> Way | None:
        """Return the input with which padding changes no number; None where it does regardless."""
        tried = self._tried.setdefault((side, writing), {})
        for at in lengths_to_try(self.module, longest):
            if at > _MOST:
                return None
            known = [n for n, way in tried.items() if (n >= at if way else n <= at)]
            if not known:
                with float64_or_less(next(self.module.parameters()).device):
                    tried[at] = aside(lambda at=at: padding_way(self.module, side, at, writing))
            way = tried[known[0] if known else at]
            if way is not None:
                return way
        return None

    def of_same(self, module: nn.Module, name: str) -> Padding:
        """Return the rules of another module of this architecture; findings are carried over."""
        padding = Padding(module, self.config, name)
        padding._tried = {case: dict(findings) for case, findings in self._tried.items()}
        return padding

    def changes(self, prompts: Prompts) -> str | None:
        """Explain how padding these prompts would change the model's numbers, or return None."""
        if prompts.decoder is not None:
            reason = self.changes(prompts.decoder)
            if reason is not None:
                return reason
        longest = max(map(len, prompts.ids))
        side = prompts.padding
        if min(map(len, prompts.ids)) == longest or self.way(side, longest) is not None:
            return None
        if side == "left" and self.way("right", longest) is not None:
            return (
                f"{self.name} numbers its positions from the first column, or carries padding on "
                "in a state, so padding on the left changes its numbers; use padding='right', or "
                "run prompts of one length together"
            )
        return (
            f"{self.name} changes a prompt's numbers when it is padded on the {side} to {longest} "
            "tokens; run prompts of one length together"
        )

    def changes_writing(self, prompts: Prompts, new: int) -> str | None:
        """Explain how padding would change what the model writes after prompts, or return None."""
        longest = max(map(len, prompts.ids))
        if min(map(len, prompts.ids)) == longest:
            return None
        if self.way(prompts.padding, longest + new, writing=True) is not None:
            return None
        return (
            f"{self.name} writes other tokens after a prompt that is padded to {longest} tokens "
            "than after the prompt alone; generate for one prompt at a time, or for prompts of one "
            "length"
        )

    def inputs(self, prompts: Prompts, device: torch.device) -> dict[str, Tensor]:
        """Return ids, and for prompts of different lengths the mask and position ids they need."""
        ids, real = prompts.padded(pad_id(self.config))
        inputs = {"input_ids": ids.to(device)}
        inputs |= answer_marks(self.module, inputs["input_ids"])
        if not bool(real.all()):
            reason = self.changes(prompts)
            if reason is not None:
                raise PromptError(reason)
            inputs["attention_mask"] = real.long().to(device)
            if self.way(prompts.padding, ids.shape[1]) == "position_ids":
                inputs["position_ids"] = position_ids(real).to(device)
        return inputs


def pad_id(config: object) -> int:
    """Return the padding token; RoBERTa models derive positions from it, so it must be exact."""
    value = getattr(config, "pad_token_id", None)
    return value if isinstance(value, int) and value >= 0 else 0


def position_ids(real: Tensor) -> Tensor:
    """Return the position of each token within its own prompt, `[batch, pos]`."""
    return (real.long().cumsum(1) - 1).clamp_min(0)


def padding_way(
    module: nn.Module, side: PaddingSide, longest: int = _SHORT, writing: bool = False
) -> Way | None:
    """Find the input with which padding to a number of columns changes no number, if any."""
    if writing:  # `generate` numbers the positions itself
        return "mask" if _writes_alike(module, side, longest) else None
    ways: list[Way] = ["mask"]
    if side == "left" and "position_ids" in takes(module):
        ways.append("position_ids")
    return next((way for way in ways if _keeps_numbers(module, side, way, longest)), None)


def lengths_to_try(module: nn.Module, longest: int) -> list[int]:
    """Return the columns of trials of which one must be exact, so that `longest` columns are.

    What a model computes can depend on the number of columns where that passes a number of its
    config: a window, a block, the keys that an indexer keeps, the trained context. A trial a little
    beyond the largest such number below `longest` therefore serves for `longest`. Short prompts
    share one trial; if it is not exact, one of their own length may be.
    """
    if longest <= _SHORT:
        limits = (_SHORT, position_limit(module), context_length(module))
        most = min(n for n in limits if n is not None)
        return sorted({max(longest, most), longest}, reverse=True)
    passed = [n for n in _numbers(module.config.to_dict()) if n < longest]  # type: ignore[operator]
    return [min(longest, max(_SHORT, max(passed, default=0) + _BEYOND))]


def _numbers(config: Any) -> Iterator[int]:
    """Yield every whole number in a config."""
    if isinstance(config, Mapping):
        config = list(config.values())
    if isinstance(config, (list, tuple)):
        for value in config:
            yield from _numbers(value)
    elif isinstance(config, int) and not isinstance(config, bool):
        yield config


def _rows(module: nn.Module, longest: int) -> list[Tensor]:
    """Make prompts of several lengths, the longest first and of the others two each.

    One is varied; the other repeats a few tokens, which are ties to a family that keeps the keys
    of largest weight, and what it keeps of ties can depend on the number of columns.
    """
    shortest = max(2, least_length(module.config))
    vocab, generator = vocabulary(module.config), torch.Generator().manual_seed(0)
    first = 5 if vocab > 10 else 0  # the first tokens are often special
    different = vocab - first
    rows = [torch.arange(longest) % different + first]
    for n in sorted({max(shortest, n) for n in (longest - 3, longest // 2, longest // 8)}):
        step = 1 + len(rows)
        rows.append(torch.arange(len(rows), len(rows) + n * step, step) % different + first)
        rows.append(torch.randint(first, first + min(7, different), (n,), generator=generator))
    if not first:  # few tokens, of which one may begin all prompts, and another be what fills
        n = max(shortest, longest // 2)
        rows += [(torch.arange(n) + start) % different for start in range(different)]
    return rows


def _padded(module: nn.Module, rows: Sequence[Tensor], side: PaddingSide) -> dict[str, Tensor]:
    prompts = Prompts(tuple(tuple(row.tolist()) for row in rows), padding=side)
    ids, real = prompts.padded(pad_id(module.config))
    return {"input_ids": ids, "attention_mask": real.long()}


def _allowed(module: nn.Module, like: Tensor) -> float:
    dtype = next(p.dtype for p in module.parameters() if p.is_floating_point())
    return _SAME.get(dtype, _ROUNDINGS * torch.finfo(dtype).eps) * float(like.abs().max())


def _keeps_numbers(module: nn.Module, side: PaddingSide, way: Way, longest: int) -> bool:
    """Return True if prompts of several lengths have, padded, the numbers that they have alone.

    Every position counts: a convolution with a bias carries padding into the first tokens only.
    """
    rows = _rows(module, longest)
    inputs = _padded(module, rows, side)
    real = inputs["attention_mask"].bool()
    if way == "position_ids":
        inputs["position_ids"] = position_ids(real)
    # last hidden states take less memory than the logits of a long trial
    runs = module if longest <= _SHORT else getattr(module, "base_model", module)
    together = torch.cat(_in_parts(module, inputs, lambda part: _output(module, runs, part)))
    for padded, row, mine in zip(together, rows, real.to(together.device), strict=True):
        if len(row) == longest:
            continue  # not padded
        alone = _output(module, runs, {"input_ids": row[None]})[0]
        got = padded[mine] if padded.dim() == 2 else padded
        if float((got - alone).abs().max()) > _allowed(module, alone):
            return False
    return True


def _in_parts(
    module: nn.Module, inputs: dict[str, Tensor], run: Callable[[Any], _Found]
) -> list[_Found]:
    """Run the padded prompts of a trial, fewer at a time where memory runs out."""
    return backing_off([inputs], run, type(module).__name__, told=False)


def _output(module: nn.Module, runs: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    inputs = {name: x.to(next(module.parameters()).device) for name, x in inputs.items()}
    inputs |= answer_marks(module, inputs["input_ids"])
    if is_encoder_decoder(module):
        inputs["decoder_input_ids"] = inputs["input_ids"]
        if "attention_mask" in inputs:
            inputs["decoder_attention_mask"] = inputs["attention_mask"]
    with torch.no_grad(), inference(module):
        out = runs(**inputs)
    return (out if isinstance(out, Tensor) else out[0]).double()


def _writes_alike(module: nn.Module, side: PaddingSide, longest: int) -> bool:
    """Return True if a model writes after padded prompts what it writes after each alone.

    Its logits are compared at each step up to a token that rounding decides.
    """
    rows = _rows(module, max(2, longest - _WRITTEN))
    parts = _in_parts(module, _padded(module, rows, side), lambda part: _written(module, part))
    ids = torch.cat([ids for ids, _ in parts])
    logits = [torch.cat(step) for step in zip(*(logits for _, logits in parts), strict=True)]
    for number, row in enumerate(rows):
        given = {"input_ids": row[None], "attention_mask": torch.ones_like(row[None])}
        own_ids, own_logits = _written(module, given)
        for step, (got, alone) in enumerate(zip(logits, own_logits, strict=True)):
            if float((got[number] - alone[0]).abs().max()) > _allowed(module, alone):
                return False
            if ids[number, step] != own_ids[0, step]:
                break
    return True


def _written(module: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return the tokens that a model writes greedily, and the logits of each."""
    device = next(module.parameters()).device
    with torch.no_grad(), inference(module):
        out = module.generate(
            **{name: x.to(device) for name, x in inputs.items()},
            max_new_tokens=_WRITTEN,
            min_new_tokens=_WRITTEN,
            do_sample=False,
            num_beams=1,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=pad_id(module.config),
        )
    return out.sequences[:, -_WRITTEN:], [x.double() for x in out.logits]
