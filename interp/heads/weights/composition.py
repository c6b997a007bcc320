"""Composition of heads with earlier heads."""

from interp.core.declaration import like
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


@like(k_composition)
def q_composition(model, *, subtract_baseline: bool = True):
    """Q-composition with the strongest earlier head, whose output forms the queries.

    `|A B| / (|A| |B|)` in Frobenius norms, with A the OV circuit of a head of an earlier attention
    and B this head's QK circuit from the query's side, of folded weights. The largest over earlier
    heads: `interp.heads.weights.composition_scores` gives every pair. Heads of the first attention
    have no earlier head and score 0.

    With rotary positions the score is that of query and key at the same position (distance zero). A
    maximum over many pairs lies above their mean, so compare with the score of random weights (the
    null). MLPs in between are ignored.

    Not for: the cases that `k_composition` excludes: the circuit is that of distance zero, and MLPs
    between the two heads are ignored.
    """
    from interp.heads.weights._composition import strongest

    return strongest(model, "q", subtract_baseline)


@like(k_composition, requires=("ov", "pairs"))
def v_composition(model, *, subtract_baseline: bool = True):
    """V-composition with the strongest earlier head, whose output forms the values.

    `|A B| / (|A| |B|)` in Frobenius norms, with A the OV circuit of a head of an earlier attention
    and B this head's OV circuit, of folded weights. The largest over earlier heads:
    `interp.heads.weights.composition_scores` gives every pair. Heads of the first attention have no
    earlier head and score 0.

    The two heads together act as a virtual head, which attends by both patterns in turn. A maximum
    over many pairs lies above their mean, so compare with the score of random weights (the null).
    MLPs in between are ignored.

    Not for: claiming that a virtual head is used: both attention patterns must fall on the right
    tokens as well.
    """
    from interp.heads.weights._composition import strongest

    return strongest(model, "v", subtract_baseline)
