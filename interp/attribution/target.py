"""The number of the model that an attribution explains."""

from __future__ import annotations

from collections.abc import Callable
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
"""One number per input, from the model's output and which of its positions are real."""

Of = Literal["logit", "log-probability", "probability"]
OFS = ("logit", "log-probability", "probability")


@dataclass(frozen=True, eq=False)
class Target:
    """A number per input, differentiable in the model's output.

    Args:
        name: such as `logit of ' mat' at position -1`.
        read: the number; see `Read`.
        position: the output position that it reads, negative from the end; None where it reads
            all of them alike. Methods that know no gradient explain this row of the model.
        unit: of the number.
    """

    name: str
    read: Read
    position: int | None
    unit: str

    def rows(self, n: int) -> Float[Tensor, " pos"]:
        """How much the target reads each of n output positions; sums to 1.

        Raises:
            OptionError: the position lies outside.
        """
        if self.position is None:
            return torch.full((n,), 1 / n, dtype=torch.double)
        if not -n <= self.position < n:
            raise OptionError(f"target position {self.position} of {n} tokens: {self.name}")
        rows = torch.zeros(n, dtype=torch.double)
        rows[self.position] = 1
        return rows


def _at(position: int, real: Bool[Tensor, "batch pos"]) -> Tensor:
    """Column of a position counted over the real tokens of each row.

    Raises:
        OptionError: a row is too short.
    """
    count = real.sum(1)
    index = count + position if position < 0 else torch.full_like(count, position)
    if bool(((index < 0) | (index >= count)).any()):
        raise OptionError(
            f"target position {position} lies outside an input of {int(count.min())} tokens"
        )
    first = real.int().argmax(1)  # padding may stand on either side
    return first + index


def token_logit(
    model: Model,
    token: str | int,
    *,
    contrast: str | int | None = None,
    position: int = -1,
    of: Of = "logit",
) -> Target:
    """The logit of a token at a position, or its difference to the logit of another token.

    Args:
        token: an id, or a text that is exactly one token.
        contrast: the token whose logit is subtracted.
        position: counted over real tokens, negative from the end.
        of: logit, log-probability or probability.

    Raises:
        PromptError: no such token.
        OptionError: a contrast of anything but logits; an unknown `of`.
    """
    if of not in OFS:
        raise OptionError(f"target {of!r}; known: {', '.join(OFS)}")
    first = token_id(model, token)
    second = None if contrast is None else token_id(model, contrast)
    if second is not None and of != "logit":
        raise OptionError("a contrast is a difference of logits; leave out of=")

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
    """The logit of a class, for a model with one row of logits per input.

    Raises:
        OptionError: no such class.
    """
    classes = int(getattr(model.config, "num_labels", 0))
    if not 0 <= index < classes:
        raise OptionError(f"class {index}; {model.name} has {classes}, counted from 0")
    names = getattr(model.config, "id2label", None) or {}

    def read(output: Tensor, real: Tensor) -> Tensor:
        if output.dim() != 2:
            raise OptionError(f"{model.name} gives no logits of classes; take another target")
        return output[:, index]

    return Target(f"logit of class {index} ({names.get(index, '')})", read, 0, "logit")


def similarity(model: Model, to: str) -> Target:
    """Cosine of the mean of the last states (padding left out) with that of another text.

    The sentence similarity of encoders that pool by the mean.

    Raises:
        PromptError: the model has no tokenizer.
        OptionError: it gives logits, not states.
    """
    with torch.no_grad():
        inputs = model.inputs(to)
        other = model.run(inputs)
    if other.dim() != 3 or other.shape[-1] != model.d_model:
        raise OptionError(
            f"{model.name} gives logits, no states to compare; name a token or a class as target"
        )
    reference = other.double().mean((0, 1))

    def read(output: Tensor, real: Tensor) -> Tensor:
        weight = real.to(output)[..., None]
        pooled = (output * weight).sum(1) / weight.sum(1)
        return torch.cosine_similarity(pooled.double(), reference.to(output.device)[None], dim=-1)

    return Target(f"cosine with {to!r}", read, None, "cosine")


def parse_target(model: Model, text: str | None, output: Tensor, position: int = -1) -> Target:
    """A target as the command line writes it.

    `token:WORD` or the word alone, `token:A|B` for a difference, `id:N`, `class:N`,
    `similarity:TEXT`; without one, the model's own first choice. `output` is the model's on the
    input that is explained.

    Raises:
        OptionError: the model has no first choice, or a number does not parse.
        PromptError: no such token.
    """
    if text is None:
        if output.dim() == 2:
            return label(model, int(output[0].argmax()))
        if output.shape[-1] != model.d_vocab:
            raise OptionError(
                f"{model.name} gives states, not logits, so it has no first choice; "
                "give a target, such as similarity:A SECOND TEXT"
            )
        _at(position, torch.ones(output.shape[:2], dtype=torch.bool))  # raises outside
        return token_logit(model, int(output[0, position].argmax()), position=position)
    kind, colon, rest = text.partition(":")
    if not colon or kind not in ("token", "id", "class", "similarity"):
        kind, rest = "token", text
    if kind == "similarity":
        return similarity(model, rest)
    if kind in ("id", "class"):
        try:
            number = int(rest)
        except ValueError as error:
            raise OptionError(f"target {text!r}: {rest!r} is no number") from error
        return (
            label(model, number)
            if kind == "class"
            else token_logit(model, number, position=position)
        )
    if output.dim() == 3 and output.shape[-1] != model.d_vocab:
        raise OptionError(
            f"{model.name} gives states, not logits of tokens; take similarity:A SECOND TEXT"
        )
    token, bar, contrast = rest.partition("|")
    return token_logit(model, token, contrast=contrast if bar else None, position=position)
