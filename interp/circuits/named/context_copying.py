"""Heads that write what the prompt says against what the model knows."""

from interp.heads.declaration import experiment


@experiment(
    unit="logit",
    requires=("tokens", "causal", "tokenizer"),
    chance="effect on prompts that give a fact about another country",
    end="high",
    task="given_fact",
)
def context_copying(model, lab, *, pairs: int = 32):
    """Write the answer that the prompt gives, where the model has learned another one.

    Prompts give a false capital and then ask for it. Score = the head's direct effect on the logit
    of the given capital minus that of the true one. A model that does not follow the prompt, or
    whose tokenizer splits countries and capitals, gets no scores.

    Cost: One forward pass per prompt of both sides, and one per prompt for the measure.

    Null: the same on prompts that give the capital of another country, which answers nothing.

    Not for: knowledge in general: all facts are capitals. The paper attributes relevance to heads
    on questions with and without a text; here it is the direct effect.

    Options:
        pairs: number of pairs of prompts.

    Reference: Kahardipraja et al. 2025, "The Atlas of In-Context Learning: How Attention Heads
    Shape In-Context Retrieval Augmentation" (arXiv 2505.15807; in-context and parametric heads).
    """
    from interp.circuits.named._task import direct

    return direct(model, lab, "context_copying", "given_fact", pairs)
