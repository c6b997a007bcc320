"""Targets: the number of a model that an attribution explains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.tokens import show, token_id

if TYPE_CHECKING:
    from interp.model.model import Model

Read = Callable[[Tensor, Bool[Tensor, "batch pos"]], Float[Tensor, " batch"]]
"""Function from the model's output and a mask of real positions to one number per input."""

Of = Literal["logit", "log-probability", "probability"]
OFS = ("logit", "log-probability", "probability")


@dataclass(frozen=True, eq=False)
class Target:
    """Number per input, a differentiable function of the model's output.

    Args:
        name: description, such as `logit of ' mat' at position -1`.
        read: function that computes the number; see `Read`.
        position: output position that the number depends on, negative from the end; None if it
            depends on all positions equally. Methods without gradients explain this position.
        unit: unit of the number.
    """

    name: str
    read: Read
    position: int | None
    unit: str

    def rows(self, n: int) -> Float[Tensor, " pos"]:
        """Return the weight of each of n output positions in the target; the weights sum to 1."""
        if self.position is None:
            return torch.full((n,), 1 / n, dtype=torch.double)
        if not -n <= self.position < n:
            raise OptionError(
                f"target position {self.position} lies outside {n} tokens: {self.name}"
            )
        rows = torch.zeros(n, dtype=torch.double)
        rows[self.position] = 1
        return rows


AnyTarget = Target | str | int
"""A target, the notation of `parse_target`, or the id of a token (of a class, in a classifier)."""
Targets = AnyTarget | Sequence[AnyTarget | None]
"""One target for all inputs, or one per input, where None is the model's own first choice."""


def _at(position: int, real: Bool[Tensor, "batch pos"]) -> Tensor:
    """Return the column of a position that is counted over the real tokens of each row."""
    count = real.sum(1)
    index = count + position if position < 0 else torch.full_like(count, position)
    if bool(((index < 0) | (index >= count)).any()):
        raise OptionError(
            f"target position {position} lies outside an input of {int(count.min())} tokens"
        )
    first = real.int().argmax(1)  # padding may be on either side
    return first + index


def token_logit(
    model: Model,
    token: str | int,
    *,
    contrast: str | int | None = None,
    position: int = -1,
    of: Of = "logit",
) -> Target:
    """Make the target "logit of a token at a position", or its difference to another token's."""
    if of not in OFS:
        raise OptionError(f"unknown target of={of!r}; known: {', '.join(OFS)}")
    first = token_id(model, token)
    second = None if contrast is None else token_id(model, contrast)
    if second is not None and of != "logit":
        raise OptionError("a contrast is a difference of logits; omit of=")

    def read(output: Tensor, real: Tensor) -> Tensor:
        row = output[torch.arange(len(output), device=output.device), _at(position, real)]
        if of != "logit":
            row = row.double().log_softmax(-1)
            row = row.exp() if of == "probability" else row
        return row[:, first] - (0 if second is None else row[:, second])

    name = f"{of} of {show(model, first)}"
    name += "" if second is None else f" minus {show(model, second)}"
    units = {"logit": "logit", "log-probability": "nat", "probability": "probability"}
    return Target(f"{name} at position {position}", read, position, units[of])


def label(model: Model, index: int) -> Target:
    """Make the target "logit of a class", for a model with one row of logits per input."""
    classes = int(getattr(model.config, "num_labels", 0))
    if not 0 <= index < classes:
        raise OptionError(f"there is no class {index}; {model.name} has {classes}, counted from 0")
    names = getattr(model.config, "id2label", None) or {}

    def read(output: Tensor, real: Tensor) -> Tensor:
        if output.dim() != 2:
            raise OptionError(f"{model.name} has no logits of classes; use another target")
        return output[:, index]

    return Target(f"logit of class {index} ({names.get(index, '')})", read, 0, "logit")


def similarity(model: Model, to: str) -> Target:
    """Make the target "cosine of the mean final state with that of another text".

    Padding is excluded from the mean. This is the sentence similarity of encoders with mean
    pooling.

    Raises:
        PromptError: the model has no tokenizer.
        OptionError: the model outputs logits, not states.
    """
    with torch.no_grad():
        inputs = model.inputs(to)
        other = model.run(inputs)
    if other.dim() != 3 or other.shape[-1] != model.d_model:
        raise OptionError(
            f"{model.name} outputs logits, not states to compare; use a token or a class as target"
        )
    reference = other.double().mean((0, 1))

    def read(output: Tensor, real: Tensor) -> Tensor:
        weight = real.to(output)[..., None]
        pooled = (output * weight).sum(1) / weight.sum(1)
        return torch.cosine_similarity(pooled.double(), reference.to(output.device)[None], dim=-1)

    return Target(f"cosine with {to!r}", read, None, "cosine")


def parse_target(
    model: Model, text: str | int | None, output: Tensor, position: int = -1
) -> Target:
    """Parse a target in the notation of the command line.

    The notation is `token:WORD` or the word alone, `token:A|B` for a difference, `id:N`,
    `class:N`, or `similarity:TEXT`.
    """
    if text is None:
        if output.dim() == 2:
            return label(model, int(output[0].argmax()))
        if output.shape[-1] != model.d_vocab:
            raise OptionError(
                f"{model.name} outputs states, not logits, so it has no first choice; "
                "give a target, such as similarity:A SECOND TEXT"
            )
        _at(
            position, torch.ones(output.shape[:2], dtype=torch.bool)
        )  # raises an error if the position lies outside
        return token_logit(model, int(output[0, position].argmax()), position=position)
    if isinstance(text, int):
        text = f"class:{text}" if output.dim() == 2 else f"id:{text}"
    kind, colon, rest = text.partition(":")
    if not colon or kind not in ("token", "id", "class", "similarity"):
        kind, rest = "token", text
    if kind == "similarity":
        return similarity(model, rest)
    if kind in ("id", "class"):
        try:
            number = int(rest)
        except ValueError as error:
            raise OptionError(f"target {text!r}: {rest!r} is not a whole number") from error
        return (
            label(model, number)
            if kind == "class"
            else token_logit(model, number, position=position)
        )
    if output.dim() == 3 and output.shape[-1] != model.d_vocab:
        raise OptionError(
            f"{model.name} outputs states, not logits of tokens; use similarity:A SECOND TEXT"
        )
    token, bar, contrast = rest.partition("|")
    return token_logit(model, token, contrast=contrast if bar else None, position=position)


def one_each(targets: Targets | None, n: int) -> list[AnyTarget | None]:
    """Return the target of each of n inputs."""
    if targets is None or isinstance(targets, (str, int, Target)):
        return [targets] * n
    if len(targets) != n:
        raise OptionError(
            f"{len(targets)} targets for {n} inputs; give one per input, or one for all"
        )
    return list(targets)
