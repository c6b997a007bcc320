"""K-composition of heads."""

from interp.heads.declaration import weights


@weights(unit="Frobenius ratio", low=None, high=1.0, requires=("ov", "qk", "pairs"), end="high")
def k_composition(model, *, subtract_baseline: bool = True):
    """K-composition with the strongest earlier head, whose output forms the keys.

    `|A B| / (|A| |B|)` in Frobenius norms, with A the OV circuit of a head of an earlier attention
    and B this head's QK circuit from the key's side, of folded weights. The largest over earlier
    heads: `interp.heads.weights.composition_scores` gives every pair. Heads of the first attention
    have no earlier head and score 0.

    In an induction circuit the keys come from a previous-token head. With rotary positions the
    score is that of query and key at the same position (distance zero). A maximum over many pairs
    lies above their mean, so compare with the score of random weights (the null). MLPs in between
    are ignored.

    Cost: All pairs of heads of different layers; products of d_head x d_head factors.

    Not for: models with rotary positions in which the distance matters: the circuit is that of
    distance zero. A maximum over many pairs is above zero for random weights too.

    Options:
        subtract_baseline: subtract the mean score of random matrices of the same shapes (about
            1/sqrt(d_model), measured), so that 0 is what one random pair scores.

    Reference: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
    """
    from interp.heads.weights._composition import strongest

    return strongest(model, "k", subtract_baseline)
