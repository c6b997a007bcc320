"""Heads that write a refusal."""

from interp.heads.declaration import experiment


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
    marker, gets no scores. For prompts in words use `direct_effect:task=FILE.jsonl`, or
    `interp study safety`.

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
