"""Effective rank of QK circuits."""

from interp.heads.declaration import weights


@weights(unit="directions", low=0.0, high=None, requires=("qk",))
def qk_rank(model, *, by_entropy: bool = False):
    """How many directions of the stream a head's scores depend on: the rank of its QK circuit.

    The stable rank, `|M|_F^2 / |M|_2^2`: between 1 and d_head, d_head where all singular values
    are equal, 0 where there are none. It says how many directions count, not which; a head of
    small weights can have full rank.

    Not for: finding out what a head looks for: a rank counts directions and names none.

    Options:
        by_entropy: the exponential of the entropy of the singular values' shares instead, which
            counts weak directions more.

    Reference: Rudelson and Vershynin 2007, "Sampling from Large Matrices" (stable rank); Roy and
    Vetterli 2007, "The Effective Rank" (entropy).
    """
    from interp.heads.weights._rank import effective_rank

    circuits = {site: model.weights_of(site).QK for site in model.sites}
    return {site: effective_rank(c.singular_values(), by_entropy) for site, c in circuits.items()}
