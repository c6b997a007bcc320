"""Spectral gap of attention patterns."""

from interp.heads.declaration import measurement


@measurement(unit="one minus an eigenvalue", low=0.0, high=1.0, requires=("self",))
def spectral_gap(layer):
    """Spectral gap of a pattern: one minus its second largest absolute eigenvalue.

    1 if all rows are equal, 0 if the pattern is the identity. The eigenvalues of a causal pattern
    are its diagonal, the attention of each token to itself, so there it depends on nothing else:
    compare `singular_gap`.

    Not for: bidirectional prompts beyond 2,048 tokens, which are refused: eigenvalues need the
    whole pattern.

    Reference: Nahshan et al. 2024, "Linear Log-Normal Attention with Unbiased Concentration" (arXiv
    2311.13541).
    """
    from interp.heads.geometry._eigenvalues import second_eigenvalue

    return 1 - second_eigenvalue(layer)
