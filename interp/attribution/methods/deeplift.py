"""DeepLIFT: contributions to the difference from a reference input, by the rescale rule."""

from __future__ import annotations

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example


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
    from interp.attribution.differences import from_reference
    from interp.attribution.gradients import NOT_LINEAR, reads_linearly
    from interp.attribution.methods.integrated_gradients import baseline_embeddings, usable

    baseline = usable(example) if baseline == "auto" else baseline
    scores, value, before = from_reference(example, baseline_embeddings(example, baseline))
    notes = {"baseline": baseline, "baseline_value": before}
    cause = "" if reads_linearly(example) else NOT_LINEAR
    return Scores(scores, total=value - before, residual_cause=cause, notes=notes)
