"""Example: one input with the number to explain, the argument of every attribution method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attribution.target import AnyTarget, Target, parse_target
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.tokens import prompt_text_of, words
from interp.model.calls.sites import Site
from interp.model.inputs import takes
from interp.model.views import softmax_view

if TYPE_CHECKING:
    from interp.model.capture import ActivationCache
    from interp.model.model import Model

Array = np.ndarray


class Example:
    """One input of a model, its tokens, and the target.

    The sources are the tokens of the input. For an encoder-decoder they are the tokens of the
    encoder, and the outputs are the positions of the decoder.

    Args:
        model: the loaded model.
        prompt: a text, token ids, or the tensors of the model's arguments (one input).
        target: see `interp.attribution.target`; a text is parsed by `parse_target`, None means the
            model's own first choice.
        position: output position of the target, negative from the end, unless `target` is a
            `Target`.

    Raises:
        PromptError: several inputs are given, or the model does not read tokens.
        OptionError: the model does not have the target.
    """

    def __init__(
        self, model: Model, prompt: Any, target: AnyTarget | None = None, position: int = -1
    ) -> None:
        self.model = model
        self.inputs: dict[str, Tensor] = model.inputs(prompt)
        if "input_ids" not in self.inputs or len(self.inputs["input_ids"]) != 1:
            raise PromptError("an attribution explains one input of tokens; call it once per input")
        mask = self.inputs.get("attention_mask")
        if mask is not None and not bool(mask.all()):
            raise PromptError(
                "an attribution explains one input without padding; remove the padding"
            )
        self.ids: tuple[int, ...] = tuple(self.inputs["input_ids"][0].tolist())
        last = target.position if isinstance(target, Target) else position
        last_only = (
            last == -1 and model.kind == "causal" and "logits_to_keep" in takes(model.module)
        )
        # for a long prompt the logits of all positions need more memory than anything else
        self.short: dict[str, Any] = {"logits_to_keep": 1} if last_only else {}
        self.target = (
            target
            if isinstance(target, Target)
            else parse_target(model, target, self.output, position)
        )
        self.target.rows(len(self.output_tokens))  # refuses a position that lies outside

    def of_softmax(self) -> Example:
        """Return the example with the softmax layers of a hybrid model alone as its attention."""
        if not any(site.kind != "softmax" for site in self.model.sites):
            return self
        return Example(softmax_view(self.model), self.inputs, self.target)

    # --- tokens -----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Source tokens as texts."""
        return words(self.model, self.ids)

    @cached_property
    def special(self) -> Bool[Array, " source"]:
        """True for sources that are tokens which the tokenizer adds (CLS, SEP, BOS)."""
        known = getattr(self.model.tokenizer, "all_special_ids", None) or ()
        return np.isin(self.ids, list(known))

    @cached_property
    def output_tokens(self) -> tuple[str, ...]:
        """Tokens at the output positions, as texts."""
        ids = self.inputs.get("decoder_input_ids", self.inputs["input_ids"])[0].tolist()
        return words(self.model, ids)

    # --- the target -------------------------------------------------------------------------------

    @cached_property
    def output(self) -> Tensor:
        """Output of the model on this input, without a graph.

        It holds the last position only if that one is explained and the model can omit the others.
        """
        with torch.no_grad():
            return self.model.run(self.inputs | self.short)

    @cached_property
    def value(self) -> float:
        """Value of the target on this input."""
        return float(self.read(self.output)[0])

    @property
    def rows(self) -> Float[Tensor, " output"]:
        """Weight of each output position in the target; the weights sum to 1."""
        return self.target.rows(len(self.output_tokens))

    def read(self, output: Tensor) -> Float[Tensor, " batch"]:
        """Compute the target's value from outputs for inputs of the same length."""
        n = output.shape[1] if output.dim() == 3 else len(self)
        real = torch.ones(len(output), n, dtype=torch.bool, device=output.device)
        return self.target.read(output, real)

    def values(
        self, ids: Sequence[Sequence[int]], batch_size: int = 16
    ) -> Float[Array, " variant"]:
        """Compute the target's value on other source tokens, which may be fewer or more.

        Raises:
            PromptError: a variant is empty or does not fit the model.
            OptionError: the target's position lies outside a variant.
        """
        values = []
        decoder_inputs = {k: v for k, v in self.inputs.items() if k.startswith("decoder_")}
        with torch.no_grad():
            for batch in self.model.batches(Prompts(tuple(tuple(i) for i in ids)), batch_size):
                inputs = self.model.inputs(batch)
                if decoder_inputs:
                    inputs = {k: v for k, v in inputs.items() if not k.startswith("decoder_")}
                    inputs |= {k: v.expand(len(batch), -1) for k, v in decoder_inputs.items()}
                    real = torch.ones_like(inputs["decoder_input_ids"], dtype=torch.bool)
                else:
                    real = batch.padded()[1].to(self.model.device)
                values.append(self.target.read(self.model.run(inputs), real).double().cpu())
        return torch.cat(values).numpy()

    # --- attention --------------------------------------------------------------------------------

    def sites(self, stack: str | None = None) -> list[Site]:
        """Return the attention layers of one stack, in order; None means the only stack.

        Raises:
            OptionError: there are several stacks and none is named, or there is no such stack.
        """
        stacks = self.model.stacks
        if stack is None and len(stacks) > 1:
            raise OptionError(
                f"{self.model.name} has stacks {', '.join(stacks)}; choose one with stack="
            )
        if stack is not None and stack not in stacks:
            raise OptionError(
                f"there is no stack {stack!r}; {self.model.name} has {', '.join(stacks)}"
            )
        return [s for s in self.model.sites if stack in (None, s.stack)]

    def patterns(self, stack: str | None = None) -> list[Float[Tensor, "head query_pos key_pos"]]:
        """Return the attention pattern of every layer of one stack, cached for the next method."""
        return [self._patterns["pattern", s.layer, s.stack][0] for s in self.sites(stack)]

    @cached_property
    def _patterns(self) -> ActivationCache:
        short = {"logits_to_keep": 1} if "logits_to_keep" in takes(self.model.module) else {}
        return self.model.capture(self.inputs | short, ("pattern",))

    def capture(self, names: Sequence[str], **options: Any) -> ActivationCache:
        """Capture activations of this input; see `interp.model.capture.capture`."""
        return self.model.capture(self.inputs, names, **options)

    def about(self) -> Mapping[str, Any]:
        """Return the entries of provenance about the example."""
        return {
            "ids": list(self.ids),
            "prompt": prompt_text_of(self.model, self.ids),
            "target": self.target.name,
            "value": self.value,
            "unit": self.target.unit,
        }
