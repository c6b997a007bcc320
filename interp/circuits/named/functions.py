"""Heads that apply a function: the next item of a list, or what examples in the prompt show."""

from __future__ import annotations

from interp.heads.declaration import experiment


@experiment(
    unit="share of list items",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal", "tokenizer"),
    chance="1 / (items of the list)",
    end="high",
    task="next_items",
)
def successor(model, lab, *, residual: bool = False, least: int = 5):
    """Write the next item of an ordered list from the item that it attends to, such as May to June.

    Lists are numbers, number words, ordinals, days, months and their short forms, and letters; only
    items that are one token after a space are used. The input is what the first MLP writes for an
    item alone, without attention. An item counts if the logit of its successor is the largest of
    its own list under the head's OV circuit. Score = the share of items, averaged within a list and
    then over lists, since pooled items would be mostly numbers. Weights alone decide: the score
    does not show where the head attends.

    Cost: One short forward pass per item, and products of factors.

    Null: the same with a random successor for every item of a list.

    Not for: models whose tokenizer splits the items; those with fewer than two lists get no scores.

    Options:
        residual: add the item's embedding to what the first MLP writes.
        least: a list needs so many items that are one token.

    Reference: Gould et al. 2023, "Successor Heads: Recurring, Interpretable Attention Heads In The
    Wild".
    """
    from interp.circuits.named._ordered import successors

    return successors(model, lab, residual, least)


@experiment(
    unit="probability",
    low=-1.0,
    high=1.0,
    requires=("tokens", "causal", "tokenizer"),
    chance="effect of mean outputs on prompts with exchanged answers",
    end="high",
    task="in_context",
)
def function_vector(model, lab, *, prompts: int = 12, shots: int = 5):
    """Carry a function that examples show, such as the antonym, to prompts that do not show it.

    Prompts are five questions with their answers and one more question. A head's mean output at the
    last token, over half of the prompts, replaces its output in other prompts whose examples have
    exchanged answers. Score = the probability of the right answer that this adds, averaged over
    prompts and functions; a function is a cluster. A model that does not follow the examples in
    three functions gets no scores.

    Cost: Two forward passes per head, function and batch of prompts.

    Null: the same with the head's mean output on prompts with exchanged answers, which show the
    words and no function.

    Not for: vectors themselves; `interp.causal.find_function_vector` returns them. The paper takes
    the means of correctly answered prompts only; here all prompts count.

    Options:
        prompts: number of prompts of each half, per function.
        shots: examples in each prompt.

    Reference: Todd et al. 2023, "Function Vectors in Large Language Models" (arXiv 2310.15213).
    """
    from interp.circuits.named._vectors import carries_functions

    return carries_functions(model, lab, prompts, shots)
