"""S-inhibition heads of the indirect-object task."""

from interp.heads.declaration import experiment


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
