"""Heads that write later years of a span."""

from interp.heads.declaration import experiment


@experiment(
    unit="probability",
    requires=("tokens", "causal", "tokenizer"),
    chance="effect on spans that begin in the year 01",
    end="high",
    task="greater_than",
)
def greater_than(model, lab, *, pairs: int = 32):
    """Raise the years after the one in which a span begins, in "from 1752 to 17".

    Score = the head's direct effect on the probability of later two-digit years minus that of the
    others, by the derivative at the model's own logits. A model that does not prefer later years
    gets no scores; so does one whose tokenizer does not split years into two and two digits.

    Cost: One forward pass per prompt of both sides, and one per prompt for the measure.

    Null: the same on spans that begin in the year 01, after which nearly every year is later.

    Not for: arithmetic in general: it is one comparison, of two digits.

    Options:
        pairs: number of pairs of prompts.

    Reference: Hanna et al. 2023, "How does GPT-2 compute greater-than?".
    """
    from interp.circuits.named._task import direct

    return direct(model, lab, "greater_than", "greater_than", pairs)
