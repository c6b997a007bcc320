"""V-composition of heads."""

from interp.heads.declaration import weights


@weights(unit="Frobenius ratio", low=None, high=1.0, requires=("ov", "pairs"), end="high")
def v_composition(model, *, subtract_baseline: bool = True):
    """V-composition with the strongest earlier head, whose output forms the values.

    `|A B| / (|A| |B|)` in Frobenius norms, with A the OV circuit of a head of an earlier attention
    and B this head's OV circuit, of folded weights. The largest over earlier heads:
    `interp.heads.weights.composition_scores` gives every pair. Heads of the first attention have no
    earlier head and score 0.

    The two heads together act as a virtual head, which attends by both patterns in turn. A maximum
    over many pairs lies above their mean, so compare with the score of random weights (the null).
    MLPs in between are ignored.

    Cost: All pairs of heads of different layers; products of d_head x d_head factors.

    Not for: claiming that a virtual head is used: both attention patterns must fall on the right
    tokens as well.

    Options:
        subtract_baseline: subtract the mean score of random matrices of the same shapes (about
            1/sqrt(d_model), measured), so that 0 is what one random pair scores.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    from interp.heads.weights._composition import strongest

    return strongest(model, "v", subtract_baseline)
