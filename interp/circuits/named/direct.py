"""Heads whose direct effect decides a task, and those that turn them away from a token."""

from __future__ import annotations

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


@experiment(
    unit="logit",
    requires=("tokens", "causal", "tokenizer"),
    chance="effect on prompts in which a third person gives",
    end="high",
    task="ioi",
)
def name_mover(model, lab, *, pairs: int = 32):
    """Write the name of the person who receives, in sentences where the other one gives.

    Prompts are "When Anna and Peter went to the park, Peter gave a ball to", in both orders of the
    names and several templates; a template is a cluster. Score = the head's direct effect on the
    logit of the receiver minus that of the giver at the last token. A model whose logits do not
    prefer the receiver gets no scores.

    Cost: One forward pass per prompt of both sides, and one per prompt for the measure.

    Null: the same on prompts in which a third person gives, so that neither name is right.

    Not for: heads that tell the movers where to look; those are `s_inhibition`.

    Options:
        pairs: number of pairs of prompts.

    Reference: Wang et al. 2022, "Interpretability in the Wild".
    """
    from interp.circuits.named._task import direct

    return direct(model, lab, "name_mover", "ioi", pairs)


@experiment(
    unit="logit",
    requires=("tokens", "causal", "tokenizer"),
    chance="effect on prompts in which a third person gives",
    end="high",
    task="ioi",
)
def negative_name_mover(model, lab, *, pairs: int = 32):
    """Lower the logit of the name that is right, in the sentences of `name_mover`.

    Score = minus the head's direct effect on the logit of the receiver minus that of the giver, so
    that a head that works against the answer has a positive score.

    Cost: One forward pass per prompt of both sides, and one per prompt for the measure.

    Null: the same on prompts in which a third person gives, so that neither name is right.

    Not for: whether a head suppresses any token that is predicted and was seen before; that is
    `copy_suppression`.

    Options:
        pairs: number of pairs of prompts.

    Reference: Wang et al. 2022, "Interpretability in the Wild".
    """
    from interp.circuits.named._task import direct

    return direct(model, lab, "negative_name_mover", "ioi", pairs, sign=-1)


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


@experiment(
    unit="nats",
    requires=("tokens", "causal"),
    chance="effect on requests with another token in place of the marker",
    end="high",
    task="refusal",
)
def refusal_writer(model, lab, *, pairs: int = 32):
    """Raise the log odds that the next token begins a refusal, where a request must be declined.

    Requests have the marker that the model's config states. Score = the head's direct effect on the
    log odds, by their derivative. A model that does not decline them, or whose config states no
    marker, gets no scores. For prompts in words use `direct_effect:task=FILE.jsonl`, or `interp
    safety`.

    Cost: One forward pass per prompt of both sides, and one per prompt for the measure.

    Null: the same requests with another token in place of the marker.

    Not for: heads that detect what is harmful and act through later layers; `ships` ablates heads.

    Options:
        pairs: number of pairs of prompts.

    Reference: Arditi et al. 2024, "Refusal in Language Models Is Mediated by a Single Direction"
    (the log odds); Wang et al. 2022 (direct effects).
    """
    from interp.circuits.named._task import direct

    return direct(model, lab, "refusal_writer", "refusal", pairs)


@experiment(
    unit="attention mass",
    low=-2.0,
    high=2.0,
    requires=("tokens", "causal", "tokenizer"),
    chance="0",
    end="high",
    task="ioi",
)
def s_inhibition(model, lab, *, pairs: int = 24, movers: int = 3):
    """Turn the name movers away from the person who gives.

    On half of the pairs the heads with the largest direct effect on the answer are taken as name
    movers. On the other half, a head's output at the last token is replaced by its output on the
    prompt in which a third person gives. Score = the part of the movers' attention to the receiver
    minus that to the giver's two mentions that is lost by it, averaged over movers and prompts.
    The replacement acts through everything between the head and the movers, not on their queries
    alone as in the paper. Heads of layers that cannot reach the movers have no score.

    Cost: One forward pass per head and batch of prompts; 144 heads take about a minute on a
    processor.

    Null: the same with the head's output on the same prompt with another place or thing, so that
    the persons stay the same; a prompt without such a word of one token is left out of it.

    Not for: models whose movers cannot be told: with a small lead of the right answer they are
    chosen by chance.

    Options:
        pairs: number of pairs of prompts; half of them choose the movers.
        movers: number of heads that are taken as name movers.

    Reference: Wang et al. 2022, "Interpretability in the Wild".
    """
    from interp.circuits.named._inhibition import inhibition

    return inhibition(model, lab, pairs, movers)
