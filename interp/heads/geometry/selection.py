"""Keys that a selection by score would choose or miss."""

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


@measurement(unit="share of keys", low=0.0, high=1.0, requires=("qk",), end="high")
def unselectable_keys(layer):
    """Share of a head's keys that no query can give the largest score.

    A key of a prompt is unselectable if it lies in the convex hull of the others. Keys with more
    dimensions than their number minus one are almost always all selectable. Decided by rank where
    that settles it, by trial queries, and otherwise by a linear program (HiGHS).

    Not for: causal limits: the first 48 keys of the prompt compete with each other here, whoever
    sees them, and biases by position count for nothing.

    Reference: Brody et al. 2023, "On the Expressivity Role of LayerNorm in Transformers' Attention"
    (arXiv 2305.02582; there with Gurobi and on hidden states).
    """
    from interp.heads.geometry._selectable import MOST, unselectable_share

    shared = layer.heads // layer.call.k.shape[1]
    shares = unselectable_share(layer.call.k[:, :, :MOST].double())
    return shares.repeat_interleave(shared, 1)
