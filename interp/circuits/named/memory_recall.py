"""Heads that write what the model has learned."""

from interp.heads.declaration import experiment


@experiment(
    unit="logit",
    requires=("tokens", "causal", "tokenizer"),
    chance="effect on prompts about another country",
    end="high",
    task="known_fact",
)
def memory_recall(model, lab, *, pairs: int = 32):
    """Write the capital of a country that the prompt asks for and does not give.

    Score = the head's direct effect on the logit of the true capital minus that of another one. A
    model that does not know the capitals, or whose tokenizer splits them, gets no scores.

    Cost: One forward pass per prompt of both sides, and one per prompt for the measure.

    Null: the same on prompts about another country, whose capital is neither of the two.

    Not for: facts that MLPs write without a head: this counts heads only.

    Options:
        pairs: number of pairs of prompts.

    Reference: Kahardipraja et al. 2025, "The Atlas of In-Context Learning: How Attention Heads
    Shape In-Context Retrieval Augmentation" (arXiv 2505.15807; in-context and parametric heads).
    """
    from interp.circuits.named._task import direct

    return direct(model, lab, "memory_recall", "known_fact", pairs)
