"""Directions of OV and QK circuits."""

from interp.heads.declaration import weights
from interp.model.calls.sites import circuit_sites


@weights(unit="directions", low=0.0, requires=("ov",), end="low")
def ov_directions(model, *, share: float = 0.9):
    """Rank of a head's OV circuit at 90 % of its squared singular values.

    The number of directions it reads and writes, counted where the spectrum has the share; between
    1 and d_head, 0 for a circuit of zeros. `ov_rank` is a smooth count of the same spectrum.

    Not for: finding out which directions these are.

    Options:
        share: share of the squared singular values.

    Reference: Singhania et al. 2024, "Loki" (arXiv 2406.02542), for the share of 90 %; this
    project, for circuits.
    """
    from interp.heads.geometry._spectra import rank_at

    circuits = {site: model.weights_of(site).OV for site in circuit_sites(model.sites)}
    ranks = {site: rank_at(c.singular_values(), share) for site, c in circuits.items()}
    return {site: x.nan_to_num(0.0) for site, x in ranks.items()}


@weights(unit="directions", low=0.0, requires=("qk",), end="low")
def qk_directions(model, *, share: float = 0.9):
    """Rank of a head's QK circuit at 90 % of its squared singular values.

    The number of directions its scores depend on, counted where the spectrum has the share; between
    1 and d_head, 0 for a circuit of zeros. `qk_rank` is a smooth count of the same spectrum.

    Not for: finding out which directions these are.

    Options:
        share: share of the squared singular values.

    Reference: Singhania et al. 2024, "Loki" (arXiv 2406.02542), for the share of 90 %; this
    project, for circuits.
    """
    from interp.heads.geometry._spectra import rank_at

    circuits = {site: model.weights_of(site).QK for site in circuit_sites(model.sites)}
    ranks = {site: rank_at(c.singular_values(), share) for site, c in circuits.items()}
    return {site: x.nan_to_num(0.0) for site, x in ranks.items()}
