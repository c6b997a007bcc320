"""Effective rank of QK circuits."""

from interp.heads.declaration import weights
from interp.model.locate.sites import circuit_sites


@weights(unit="directions", low=0.0, high=None, requires=("qk",))
def qk_rank(model, *, by_entropy: bool = False):
    """Effective rank of a head's QK circuit: the number of directions its scores depend on.

    The stable rank, `|M|_F^2 / |M|_2^2`: between 1 and d_head, d_head where all singular values are
    equal, 0 where there are none. It gives the number of directions, not which ones; a head with
    small weights can have full rank.

    Not for: finding out what a head attends to: a rank counts directions without identifying them.

    Options:
        by_entropy: the exponential of the entropy of the singular values' shares instead, which
            counts weak directions more.

    Reference: Rudelson and Vershynin 2007, "Sampling from Large Matrices" (stable rank); Roy and
    Vetterli 2007, "The Effective Rank" (entropy).
    """
    from interp.heads.weights._rank import effective_rank

    circuits = {site: model.weights_of(site).QK for site in circuit_sites(model.sites)}
    return {site: effective_rank(c.singular_values(), by_entropy) for site, c in circuits.items()}
