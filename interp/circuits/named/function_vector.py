"""Function-vector heads."""

from interp.heads.declaration import experiment


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
