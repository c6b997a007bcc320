"""Contributions of tokens to the difference of the target between an input and a reference."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.gradients import embedded, embedding_leaves, grads
from interp.attribution.roles import close, find_roles
from interp.attribution.rules import Rules, ruled
from interp.causal.gate_derivatives import frozen
from interp.model.hooks.inference import inference

if TYPE_CHECKING:
    from interp.attribution.example import Example

RESCALE = Rules(softmax="rescale", norm="rescale", activation="rescale")


def from_reference(
    example: Example, reference: Float[Tensor, "1 source d_embed"]
) -> tuple[Float[np.ndarray, " source"], float, float]:
    """Compute contributions by the rescale rule, in one run of the input and the reference."""
    model = example.model
    embeddings = embedded(model, example.inputs["input_ids"])
    both = torch.cat([embeddings, reference.to(embeddings)])
    inputs = {k: v.expand(2, *v.shape[1:]) for k, v in example.inputs.items()}
    roles = find_roles(model, inputs)
    with torch.no_grad(), embedding_leaves(model, None) as shapes:
        model.run(inputs)
    shapes.tensors(2, len(example))  # refuses a model that embeds in another layout
    with torch.no_grad(), embedding_leaves(model, both):
        plain = model.run(inputs)
    with torch.enable_grad(), frozen(model.module), inference(model.module), ExitStack() as stack:
        leaves = stack.enter_context(embedding_leaves(model, both))
        run = stack.enter_context(ruled(model, RESCALE, roles))
        output = model.run(inputs)
        run.check(output)
        wrong = f"{model.name}: the output of the run under rules does not equal that of the model"
        close(output, plain, wrong)
        values = example.read(output)
        value, before = values.detach().tolist()
    source, _ = leaves.tensors(2, len(example))
    (multiplier,) = grads(model, values, [source])
    apart = (source[0] - source[1]).detach().double()
    scores = (multiplier[0].double() * apart).sum(-1).cpu().numpy()
    return scores, value, before
