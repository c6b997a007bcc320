"""From the last stream to the logits: norms and matrices, then a factor or a soft cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, UnreadableAttention
from interp.core.tokens import words
from interp.model.inputs import text_config
from interp.model.locate.find_layout import layouts
from interp.model.locate.layout import Leaving
from interp.model.locate.linear import linear_map
from interp.model.locate.norms import Norm, norm_at

if TYPE_CHECKING:
    from interp.model.capture import ActivationCache
    from interp.model.model import Model

_CLOSE = 1e-3  # of the largest logit; float32 sums over the stream's width


@dataclass(frozen=True, eq=False)
class Finish:
    """What a model does to its last stream.

    Args:
        factor: all logits are multiplied by it (Cohere, Granite).
        cap: logits are `cap * tanh(x / cap)` (Gemma 2); None where they are not.
    """

    model: Model
    leaving: Leaving
    factor: float
    cap: float | None

    def __call__(self, stream: Float[Tensor, "*at d_model"]) -> Float[Tensor, "*at d_vocab"]:
        """Logits of any stream, by the model's own modules."""
        x = stream
        for step in self.leaving.steps:
            x = self.module(step.module)(x)
        x = self.module(self.leaving.matrix)(x) * self.factor
        return x if self.cap is None else self.cap * (x / self.cap).tanh()

    def module(self, name: str) -> Any:
        """A module of the model by its path."""
        return self.model.module.get_submodule(name)

    def norm(self, name: str, width: int) -> Norm:
        """A norm on the way, as it was when the layout was found."""
        return norm_at(self.model.module, name, (width,))

    def back(
        self, direction: Float[Tensor, " d_vocab"], stream: Float[Tensor, " d_model"]
    ) -> tuple[Float[Tensor, " d_model"], float]:
        """What `direction` over logits reads of the stream, with every norm's scale as it is here.

        Returns the direction in the stream and what biases add, before a cap; in float64.
        """
        given = [stream]
        with torch.no_grad():
            for step in self.leaving.steps:
                given.append(self.module(step.module)(given[-1][None, None])[0, 0])
        matrix, bias = linear_map(self.module(self.leaving.matrix), self.leaving.width)
        d = matrix.double() @ direction.double() * self.factor
        constant = 0.0 if bias is None else float(bias.double() @ direction.double()) * self.factor
        for i, step in reversed(list(enumerate(self.leaving.steps))):
            if step.kind == "norm":
                norm = self.norm(step.module, step.width)
                constant += float(norm.bias.double() @ d)
                scale = frozen_scale(norm, given[i], given[i + 1])
                d = norm.fold(d) * scale
            else:
                weight, added = linear_map(self.module(step.module), step.width)
                constant += 0.0 if added is None else float(added.double() @ d)
                d = weight.double() @ d
        return d, constant


def frozen_scale(norm: Norm, given: Tensor, returned: Tensor) -> float:
    """What a norm multiplied this vector by, beside gain and centring."""
    x = given.double()
    x = (x - x.mean() if norm.centred else x) * norm.gain.double()
    y = returned.double() - norm.bias.double()
    return float(x @ y / (x @ x).clamp_min(1e-300))


def finish(model: Model, cache: ActivationCache, stack: str) -> Finish:
    """The way from the last stream of a run to its logits, held to that run.

    Raises:
        UnreadableAttention: there is no unembedding, or the way to it is not linear but for norms,
            a factor and a soft cap.
    """
    leaving = layouts(model).vocabulary.leaving
    if isinstance(leaving, str):
        raise UnreadableAttention(leaving)
    last = cache["resid_post", model_layers(model, stack)[-1], stack]
    with torch.no_grad():
        raw = Finish(model, leaving, 1.0, None)(last).double()
    logits = cache.logits.double()
    cap = getattr(text_config(model.config), "final_logit_softcapping", None)
    if cap is not None:
        found = Finish(model, leaving, 1.0, float(cap))
        if _same(float(cap) * (raw / float(cap)).tanh(), logits):
            return found
    factor = float((raw * logits).sum() / raw.square().sum().clamp_min(1e-300))
    if _same(raw * factor, logits):
        return Finish(model, leaving, 1.0 if abs(factor - 1) < 1e-4 else factor, None)
    raise UnreadableAttention(
        f"{model.name}: norm and unembedding of the last stream do not give the model's logits "
        f"(off by {float((raw - logits).abs().max()):.2g}); something else stands before or after "
        "the unembedding"
    )


def _same(x: Tensor, y: Tensor) -> bool:
    return float((x - y).abs().max()) <= _CLOSE * float(y.abs().max())


def predicting_stack(model: Model) -> str:
    """The stack whose stream the logits are made of."""
    return "decoder" if "decoder" in model.stacks else model.stacks[-1]


def model_layers(model: Model, stack: str) -> list[int]:
    """Layers of one stack, in order."""
    return sorted(s.layer for s in model.sites if s.stack == stack)


def one_input(model: Model, prompt: Any) -> dict[str, Tensor]:
    """The tensors of one prompt.

    Raises:
        OptionError: several prompts, or padding.
    """
    inputs = model.inputs(prompt)
    mask = inputs.get("attention_mask")
    if len(inputs["input_ids"]) != 1 or (mask is not None and not bool(mask.all())):
        raise OptionError("a lens reads one prompt without padding at a time")
    return inputs


def row_of(position: int, n: int) -> int:
    """A position counted from the front.

    Raises:
        OptionError: it lies outside.
    """
    if not -n <= position < n:
        raise OptionError(f"position {position} of {n} tokens")
    return position % n


def texts(model: Model, ids: Sequence[int]) -> tuple[str, ...]:
    """Tokens as texts."""
    return words(model, ids)
