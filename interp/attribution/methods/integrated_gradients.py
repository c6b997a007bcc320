"""Contributions to the difference from a baseline: integrated gradients and DeepLIFT."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.attribution.gradients import embedded, embedding_leaves, grads
from interp.attribution.roles import close, find_roles
from interp.attribution.rules import Rules, ruled
from interp.causal.gate_derivatives import frozen
from interp.core.errors import OptionError
from interp.model.hooks.inference import inference

# A padding token is often embedded as zero or untrained: it is assumed to be so if its norm is
# below this share of the mean norm of the text's embeddings.
SHORTEST = 0.1
AT_ONCE = 4096  # embeddings in memory while the mean of the vocabulary is computed


@attribution(unit="target", signed=True, needs="gradients")
def integrated_gradients(
    example: Example, *, baseline: str = "auto", steps: int = 32, batch_size: int = 8
) -> Scores:
    """Multiply the mean gradient on the straight path from a baseline by the difference to it.

    The total is the target's value minus its value on the baseline. The sum of the scores
    approaches it as the number of steps grows, and the residual shows the remaining difference. All
    tokens are replaced, including special ones; positions are unchanged. Gradients are plain and
    taken at the midpoints of the steps.

    The padding token is an input that models have seen in training. If there is none, or it is
    embedded as zero, the mean embedding of the vocabulary is used instead. It exists in every model
    and lies where norms are smooth: at 32 steps the residual of the default was at most 2.5 % of
    the total in 50 of 58 random models, one of each family. From embeddings of zero, the value of a
    model with RMS norms jumps at the start of the path, and the residual is 100 % or more. If the
    model itself is discontinuous on the path (another expert or another key is selected), no number
    of steps makes the scores complete.

    Cost: `steps` forward and backward passes.

    Not for: a baseline that is unusual for the model: the path then runs through inputs without
    meaning, so try a second baseline. In mixtures of experts the value jumps on the path; the
    scores are then flagged as incomplete.

    Args:
        example: the input and its target.
        baseline: "pad" or "mask" (the tokenizer's token), "mean" (of the vocabulary's embeddings),
            "zero", or "auto": pad, or mean if pad is missing or embedded as zero. The notes name
            the baseline that was used.
        steps: number of forward and backward passes.
        batch_size: steps per forward pass.

    Reference: Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks".
    """
    from interp.attribution.gradients import gradient

    if steps < 1 or batch_size < 1:
        raise OptionError(f"steps={steps} and batch_size={batch_size}; both must be at least 1")
    baseline = usable(example) if baseline == "auto" else baseline
    start = baseline_embeddings(example, baseline)
    first = gradient(example, at=start)
    end = gradient(example)
    way = end.embeddings - start.to(end.embeddings)
    mean = torch.zeros_like(way)
    for low in range(0, steps, batch_size):
        at = torch.arange(low, min(low + batch_size, steps), device=way.device).to(way) + 0.5
        mean = mean + gradient(example, at=start + at[:, None, None] / steps * way).gradients.sum(
            0, keepdim=True
        )
    scores = (mean.double() * way.double()).sum(-1)[0] / steps
    value, before = float(end.values[0]), float(first.values[0])
    return Scores(
        scores.cpu().numpy(),
        total=value - before,
        residual_cause=f"the {steps} steps of the path; take more, or another baseline",
        notes={"baseline": baseline, "baseline_value": before},
    )


def baseline_embeddings(example: Example, kind: str) -> torch.Tensor:
    """Return embeddings of the baseline, one per source."""
    from interp.attribution.gradients import embedded

    model, n = example.model, len(example)
    if kind == "zero":
        return torch.zeros_like(
            embedded(model, torch.zeros(1, n, dtype=torch.long, device=model.device))
        )
    if kind == "mean":
        total = sum(
            embedded(model, ids[None]).double().sum(1, keepdim=True)
            for ids in torch.arange(model.d_vocab, device=model.device).split(AT_ONCE)
        )
        return (total / model.d_vocab).to(model.dtype).expand(1, n, -1)  # type: ignore[union-attr]
    if kind not in ("pad", "mask"):
        raise OptionError(f"unknown baseline {kind!r}; known: auto, pad, mask, mean, zero")
    token = _token(example, kind)
    if token is None:
        raise OptionError(f"{model.name} has no {kind} token; use baseline=auto")
    return embedded(model, torch.full((1, n), int(token), device=model.device))


def usable(example: Example) -> str:
    """Return "pad" if the padding token has a usable embedding, else "mean"."""
    from interp.attribution.gradients import embedded

    token, model = _token(example, "pad"), example.model
    if token is None or not 0 <= int(token) < model.d_vocab:
        return "mean"
    length = embedded(model, torch.tensor([[int(token)]], device=model.device)).double().norm()
    others = embedded(model, example.inputs["input_ids"]).double().norm(dim=-1).mean()
    return "pad" if float(length) > SHORTEST * float(others) else "mean"


def _token(example: Example, kind: str) -> int | None:
    token = getattr(example.model.tokenizer, f"{kind}_token_id", None)
    return getattr(example.model.config, f"{kind}_token_id", None) if token is None else token


@attribution(unit="target", signed=True, needs="gradients", softmax_only=True)
def deeplift(example: Example, *, baseline: str = "auto") -> Scores:
    """Split the target's difference from a baseline by multipliers instead of derivatives.

    The input and the baseline run together. An activation passes on the ratio of the difference of
    its outputs to that of its inputs (the rescale rule). A product, such as attention times values,
    queries times keys or the two sides of a gated MLP, gives each factor half of its difference; a
    softmax and a norm are split into products and functions of one variable, to which the two rules
    apply. All steps are therefore complete, and the total is the target's value minus its value on
    the baseline; the residual shows rounding, or a target that is not linear in the output.

    Captum's DeepLift replaces modules only: a softmax, activation or norm written as a function
    gets its plain derivative there, and contributions no longer add up.

    Cost: One forward and one backward pass of two inputs.

    Not for: a baseline that is unusual for the model; try a second one. Contributions of inputs
    that interact depend on the chosen split of products, and large ones may cancel.

    Args:
        example: the input and its target.
        baseline: "pad" or "mask" (the tokenizer's token), "mean" (of the vocabulary's embeddings),
            "zero", or "auto", as for `integrated_gradients`.

    Reference: Shrikumar et al. 2017, "Learning Important Features Through Propagating Activation
    Differences".
    """
    from interp.attribution.gradients import NOT_LINEAR, reads_linearly

    baseline = usable(example) if baseline == "auto" else baseline
    scores, value, before = from_reference(example, baseline_embeddings(example, baseline))
    notes = {"baseline": baseline, "baseline_value": before}
    cause = "" if reads_linearly(example) else NOT_LINEAR
    return Scores(scores, total=value - before, residual_cause=cause, notes=notes)


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
