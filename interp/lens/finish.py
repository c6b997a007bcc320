"""Map from the last stream to the logits: norms and matrices, then a factor or a soft cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.errors import OptionError, UnreadableAttention
from interp.core.tokens import words
from interp.model.hooks.inference import part_output
from interp.model.inputs import text_config
from interp.model.locate.find_layout import layouts
from interp.model.locate.layout import Leaving
from interp.model.locate.linear import linear_map
from interp.model.locate.norms import Norm, frozen_scale, norm_at
from interp.model.locate.stream_layers import stream_layers

if TYPE_CHECKING:
    from interp.model.capture import ActivationCache
    from interp.model.model import Model

_CHECKED = 8  # positions, spread over the input; logits of all are large
_CLOSE = 1e-3  # relative to the largest logit; float32 sums over the stream's width

_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")  # in configs


@dataclass(frozen=True, eq=False)
class Finish:
    """Final operations of a model, from its last stream to the logits.

    Args:
        factor: factor of all logits (Cohere, Granite).
        cap: logits are `cap * tanh(x / cap)` (Gemma 2); None without a soft cap.
    """

    model: Model
    leaving: Leaving
    factor: float
    cap: float | None

    def __call__(self, stream: Float[Tensor, "*at d_model"]) -> Float[Tensor, "*at d_vocab"]:
        """Compute the logits of any stream, by the model's own modules."""
        x = part_output(self.module(self.leaving.matrix), self.before_matrix(stream)) * self.factor
        return x if self.cap is None else self.cap * (x / self.cap).tanh()

    def before_matrix(self, stream: Float[Tensor, "*at d_model"]) -> Float[Tensor, "*at width"]:
        """Compute what the unembedding is given for any stream, such as its final norm."""
        for step in self.leaving.steps:
            stream = part_output(self.module(step.module), stream)
        return stream

    def module(self, name: str) -> Any:
        """Return a module of the model by its path."""
        return self.model.module.get_submodule(name)

    def norm(self, name: str, width: int) -> Norm:
        """Return a norm on the path, as it was when the layout was found."""
        return norm_at(self.model.module, name, (width,))

    def back(
        self, direction: Float[Tensor, " d_vocab"], stream: Float[Tensor, " d_model"]
    ) -> tuple[Float[Tensor, " d_model"], float]:
        """Map a direction over logits to the stream, with every norm's scale held at its value.

        Returns the direction in the stream and the contribution of the biases, before a cap; in
        float64.
        """
        matrix, bias = linear_map(self.module(self.leaving.matrix), self.leaving.width)
        tokens = direction.nonzero()[:, 0].to(matrix.device)  # a copy of the whole matrix is large
        weights = direction.double()[tokens]
        d = matrix[:, tokens].double() @ weights * self.factor
        constant = 0.0 if bias is None else float(bias[tokens].double() @ weights) * self.factor
        d, more = self._before_matrix(d, stream)
        return d, constant + more

    def back_all(
        self, directions: Float[Tensor, "n d_vocab"], streams: Float[Tensor, "n d_model"]
    ) -> Float[Tensor, "n d_model"]:
        """Map several directions, each on its own stream, as `back` does; without the biases.

        The numbers have the precision of the directions.
        """
        matrix, _ = linear_map(self.module(self.leaving.matrix), self.leaving.width)
        mapped = self._folded(matrix.to(directions.dtype) @ directions.mT)
        return mapped.mT * self.scales(streams).to(mapped)[:, None]

    def columns(self, tokens: Int[Tensor, " token"]) -> Float[Tensor, "d_model token"]:
        """Return the map from a stream to the logits of some tokens, up to the norms' `scales`.

        The biases and a cap are left out.
        """
        matrix, _ = linear_map(self.module(self.leaving.matrix), self.leaving.width)
        return self._folded(matrix[:, tokens.to(matrix.device)].float())

    def scales(self, streams: Float[Tensor, "n d_model"]) -> Float[Tensor, " n"]:
        """Return the product of the factors of all norms on each stream; in float64."""
        factors = torch.ones(len(streams), dtype=torch.double, device=streams.device)
        x = streams
        with torch.no_grad():
            for step in self.leaving.steps:
                y = part_output(self.module(step.module), x[None])[0]
                if step.kind == "norm":
                    factors = factors * frozen_scale(self.norm(step.module, step.width), x, y)
                x = y
        return factors

    def _folded(self, d: Float[Tensor, "width n"]) -> Float[Tensor, "d_model n"]:
        """Fold all steps, apart from the factors of norms, into directions before the matrix."""
        for step in reversed(self.leaving.steps):
            if step.kind == "norm":
                d = self.norm(step.module, step.width).fold(d)
            else:
                d = linear_map(self.module(step.module), step.width)[0].to(d) @ d
        return d * self.factor

    def _before_matrix(
        self, d: Float[Tensor, " width"], stream: Float[Tensor, " d_model"]
    ) -> tuple[Float[Tensor, " d_model"], float]:
        """Map a direction at the unembedding's input to the stream; and the biases' part."""
        inputs, constant = [stream], 0.0
        with torch.no_grad():
            for step in self.leaving.steps:
                x = inputs[-1][None, None]
                inputs.append(part_output(self.module(step.module), x)[0, 0])
        for i, step in reversed(list(enumerate(self.leaving.steps))):
            if step.kind == "norm":
                norm = self.norm(step.module, step.width)
                constant += float(norm.bias.double() @ d)
                scale = frozen_scale(norm, inputs[i], inputs[i + 1])
                d = norm.fold(d) * scale
            else:
                weight, added = linear_map(self.module(step.module), step.width)
                constant += 0.0 if added is None else float(added.double() @ d)
                d = weight.double() @ d
        return d, constant


def finish(model: Model, cache: ActivationCache, stack: str) -> Finish:
    """Return the map from the last stream of a run to its logits, checked on that run."""
    leaving = layouts(model).vocabulary.leaving
    if isinstance(leaving, str):
        raise UnreadableAttention(leaving)
    last = cache["resid_post", model_layers(model, stack)[-1], stack]
    rows = torch.linspace(0, last.shape[1] - 1, min(last.shape[1], _CHECKED)).round().long()
    with torch.no_grad():
        raw = Finish(model, leaving, 1.0, None)(last[:, rows.to(last.device)]).double()
    # the last layer may lie on another device
    logits = cache.logits[:, rows.to(cache.logits.device)].to(raw.device).double()
    config = text_config(model.config)
    caps = (getattr(config, name, None) for name in _CAPS)
    cap = next((x for x in caps if x is not None), None)
    if cap is not None:
        capped = Finish(model, leaving, 1.0, float(cap))
        if _same(float(cap) * (raw / float(cap)).tanh(), logits):
            return capped
    factor = float((raw * logits).sum() / raw.square().sum().clamp_min(1e-300))
    if _same(raw * factor, logits):
        return Finish(model, leaving, 1.0 if abs(factor - 1) < 1e-4 else factor, None)
    raise UnreadableAttention(
        f"{model.name}: norm and unembedding of the last stream do not give the model's logits "
        f"(off by {float((raw - logits).abs().max()):.2g}); another operation comes before or "
        "after "
        "the unembedding"
    )


def _same(x: Tensor, y: Tensor) -> bool:
    return float((x - y).abs().max()) <= _CLOSE * float(y.abs().max())


def predicting_stack(model: Model) -> str:
    """Return the stack whose stream the logits are computed from."""
    return "decoder" if "decoder" in model.stacks else model.stacks[-1]


def model_layers(model: Model, stack: str) -> list[int]:
    """Return all layers of one stack, in order, those without heads included."""
    return [each.layer for each in stream_layers(model, stack)]


def one_input(model: Model, prompt: Any) -> dict[str, Tensor]:
    """Return the tensors of one prompt."""
    inputs = model.inputs(prompt)
    mask = inputs.get("attention_mask")
    if len(inputs["input_ids"]) != 1 or (mask is not None and not bool(mask.all())):
        raise OptionError(
            "a lens reads one prompt at a time, without padding; give a single prompt"
        )
    return inputs


def row_of(position: int, n: int) -> int:
    """Convert a position to one counted from the front."""
    if not -n <= position < n:
        raise OptionError(f"position {position} is out of range for {n} tokens")
    return position % n


def texts(model: Model, ids: Sequence[int]) -> tuple[str, ...]:
    """Decode tokens to texts."""
    return words(model, ids)
