"""`Model`: the public interface to one transformer and its heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.prompts import Prompts
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.capture import ActivationCache, capture
from interp.model.each_batch import each_batch, tokens_in
from interp.model.edits import Edit
from interp.model.generation import Generation, generate
from interp.model.locate.weights import HeadWeights, head_weights
from interp.model.policy import Policy
from interp.model.transformer import Inputs, Transformer
from interp.model.views import joint_view, view_for


class Model(Transformer):
    """Transformer whose heads can be read and edited; made by `interp.load`."""

    @property
    def joint(self) -> Self:
        """The model with the attentions of its vision tower as sites; see `joint_view`.

        Raises:
            UnreadableAttention: it does not read pictures inside text, or its tower is not read.
        """
        return joint_view(self)

    def capture(
        self,
        prompts: Prompts | Inputs | str | Sequence,
        names: Sequence[str] = ("pattern",),
        **options: Any,
    ) -> ActivationCache:
        """Capture activations of one forward pass by name; options as in `interp.model.capture`."""
        if self.ranks is not None:
            self.ranks.require_whole(self.name)
        return capture(view_for(self, prompts), prompts, names, **options)

    def generate(
        self,
        prompts: Prompts | Inputs | str | Sequence,
        max_new_tokens: int,
        *,
        names: Sequence[str] = (),
        edits: Sequence[Edit] = (),
        policy: Policy | None = None,
        **options: Any,
    ) -> Generation:
        """Generate with a cache, captured at every step; see `interp.model.generation`.

        Args:
            prompts: the prompts.
            max_new_tokens: number of tokens to generate.
            names: activations to capture.
            edits: interventions under which to run.
            policy: function called at each step, which may change the next token, the edits, or
                stop.
            options: further arguments of the module's own `generate`, such as `num_beams`.
        """
        return generate(
            self, prompts, max_new_tokens, names=names, edits=edits, policy=policy, **options
        )

    def weights_of(self, site: Site) -> HeadWeights:
        """Return W_Q, W_K, W_V, W_O of one attention; see `interp.model.locate.weights`."""
        return head_weights(self, site)

    def mean_z(
        self, prompts: Prompts | Sequence, batch_size: int = 16
    ) -> dict[tuple[str, int], Float[Tensor, "head d_head"]]:
        """Average every head's z over all real positions, for `mean(over="dataset")`."""
        total: dict[tuple[str, int], Tensor] = {}
        count: dict[tuple[str, int], float] = {}

        def visit(site: Site, call: Call, real: Tensor) -> None:
            key = site.stack, site.layer
            z = (call.z.double() * real[:, None, :, None]).sum((0, 2))
            total[key] = total.get(key, torch.zeros_like(z)) + z
            count[key] = count.get(key, 0.0) + float(real.sum())

        batches = self.batches(Prompts.of(prompts, self), batch_size)
        each_batch(self, batches, lambda batch: self.read(batch, visit), tokens_in)
        return {key: (total[key] / count[key]).to(torch.float32) for key in total}
