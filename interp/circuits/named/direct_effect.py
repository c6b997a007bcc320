"""Heads that write the answer of a task by themselves."""

from interp.heads.declaration import experiment


@experiment(
    unit="logit",
    requires=("tokens", "causal"),
    chance="effect on the corrupted prompts",
    end="both",
    task="its option task",
)
def direct_effect(model, lab, *, task: str = "induction", pairs: int = 24):
    """Direct effect of a head on the answer of a task: what it adds to the right logit by itself.

    The task is a set of pairs of prompts: one that shows a behaviour and one in which nothing
    determines the answer. Score = what the head's output at the answering position adds to the
    task's measure (for most tasks the logit of the right answer minus that of a wrong one), with
    the scale of the final norm held at its value, averaged over the prompts. A measure that is not
    linear in the logits is replaced by its derivative at the model's own logits. Heads that work
    through other heads score 0. A model that cannot do the task gets no scores.

    Cost: One forward pass per prompt of both sides, and one per prompt for the measure.

    Null: the same on the corrupted prompts.

    Not for: heads that act through later layers, such as previous-token heads; ablate those.

    Options:
        task: a contrast task of `interp circuit` (`induction`, `ioi`, `greater_than`,
            `subject_verb`, `docstring`), or a .jsonl or .py file with one.
        pairs: number of pairs of prompts.

    Reference: Wang et al. 2022, "Interpretability in the Wild" (direct effect on the logits).
    """
    from interp.circuits.named._task import direct

    return direct(model, lab, "direct_effect", task, pairs)
