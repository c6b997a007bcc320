"""Attention on a few columns and diagonals."""

from interp.heads.declaration import measurement


@measurement(unit="attention mass", low=0.0, high=1.0, requires=("self",))
def vertical_slash(layer, *, vertical: int = 2, slash: int = 2, last: int = 8):
    """Attention on the columns and diagonals that are largest for the last queries.

    The keys of largest sum (vertical) and the distances of largest sum (slash) over the last
    queries are chosen for each head; the score is the attention of all earlier queries on them,
    averaged over queries that see more keys than are chosen. 1 for a head that always attends to
    the same tokens or distances.

    Not for: bidirectional heads that attend ahead: diagonals lie behind the query. The defaults are
    for short prompts; MInference uses the last 64 queries, keeps the first 30 columns and the
    nearest 30 diagonals in any case, and many more of both.

    Options:
        vertical: number of columns.
        slash: number of diagonals.
        last: number of last queries from which they are chosen.

    Reference: Jiang et al. 2024, "MInference 1.0: Accelerating Pre-filling for Long-Context LLMs
    via Dynamic Sparse Attention" (arXiv 2407.02490).
    """
    import torch

    from interp.heads.geometry._blocks import vertical_slash_mass
    from interp.heads.layer import mean_of_rows

    mass = vertical_slash_mass(layer, vertical, slash, last).clamp(max=1.0)
    at = torch.arange(layer.tokens, device=mass.device)
    counts = (layer.sees > vertical + slash) & (at < layer.tokens - last)
    return mean_of_rows(mass, counts)
