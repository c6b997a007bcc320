"""Distance between what is selected and what is not."""

from interp.heads.declaration import measurement


@measurement(unit="largest value norm", low=0.0, high=1.0, requires=("self",), end="low")
def selection_distance(layer, *, number: int = 4):
    """Distance between the weighted sums of the values of the top keys and of all other keys.

    In units of the largest norm of a visible value, averaged over queries that see more than twice
    as many keys. 1 is the limit that weights of sum 1 allow; for weights that are spread over T
    keys with unrelated values it falls as 1 / sqrt(T): what is selected is not told apart.

    Not for: comparing prompts of different lengths, or numbers of keys: the share of selected keys
    sets the level.

    Options:
        number: number of selected keys.

    Reference: Mudarisov et al. 2025, "Limitations of Normalization in Attention Mechanism" (arXiv
    2508.17821; there with embeddings, here with the head's values).
    """
    from interp.heads.geometry._selection import selection
    from interp.heads.layer import mean_of_rows

    return mean_of_rows(selection(layer, number)[0], layer.sees > 2 * number)
