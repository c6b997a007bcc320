"""Share of selected keys that can be told apart."""

from interp.heads.declaration import measurement


@measurement(unit="share of keys", low=0.0, high=1.0, requires=("self",))
def selection_share(layer, *, number: int = 4):
    """Share of the top keys whose weighted values lie nearer to their sum than any other's.

    The ball around the sum of the selected weighted values that holds no other weighted value;
    averaged over queries that see more than twice as many keys. The paper finds that it saturates
    at 70 to 85 % in GPT-2.

    Not for: comparing prompts of different lengths, or numbers of keys.

    Options:
        number: number of selected keys.

    Reference: Mudarisov et al. 2025, "Limitations of Normalization in Attention Mechanism" (arXiv
    2508.17821; there with embeddings, here with the head's values).
    """
    from interp.heads.geometry._selection import selection
    from interp.heads.layer import mean_of_rows

    return mean_of_rows(selection(layer, number)[1], layer.sees > 2 * number)
