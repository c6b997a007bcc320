"""Previous-token heads on natural text."""

from interp.heads.declaration import experiment


@experiment(
    unit="attention mass",
    low=0.0,
    high=1.0,
    requires=("tokens", "causal", "tokenizer"),
    chance="mass on another near token",
    end="high",
    task="repeats",
)
def previous_token_text(model, lab, *, texts: int = 24, longest: int = 64):
    """Attend to the token just before the current one, in natural text.

    Score = the attention on the token before, averaged over the rows of a text. A model that
    predicts the texts no better than uniform guessing gets no scores.

    Cost: One forward pass per text with patterns, and one for the loss.

    Null: the attention on one other token, drawn among the eight before it.

    Not for: telling a head that counts positions from one that follows words; the detector
    `previous_token` on random tokens does.

    Options:
        texts: number of texts.
        longest: maximum tokens per text.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; the control
    is this project's.
    """
    from interp.circuits.named._on_text import on_text, token_before

    null = "another of the eight tokens before"
    return on_text(model, lab, "previous_token_text", texts, longest, token_before, null)
