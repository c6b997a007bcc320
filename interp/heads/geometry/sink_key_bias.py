"""Constancy of the strongest sink's score over queries, as of a bias."""

from interp.heads.declaration import measurement


@measurement(
    unit="mean over root mean square",
    low=-1.0,
    high=1.0,
    requires=("qk", "self"),
    chance="above 0, since the key is chosen by its attention: see the null of random weights",
)
def sink_key_bias(layer):
    """Constancy over queries of the score of the strongest sink's key: 1 for a bias.

    The sink is the key with the largest mean attention of the queries that see it. A query's
    margin is its score for this key minus its mean score for the other keys that it sees; the
    result is the mean margin over its root mean square. 1 if all queries prefer the key equally,
    as a learned bias would make them; near 0 if the preference depends on the query.

    Not for: scores with additive terms such as ALiBi, which are left out: products of queries and
    keys only. Whether the sink's value is small is another question: see `no_op_value`.

    Reference: Gu et al. 2025, "When Attention Sink Emerges in Language Models: An Empirical View"
    (arXiv 2410.10781; there by cosines of queries and keys).
    """
    import torch

    from interp.heads.geometry._received import received_per_query

    received = received_per_query(layer).nan_to_num(-1.0)
    sink = received.argmax(-1)
    size = layer.q.shape[-1]
    key = layer.k.gather(2, sink[..., None, None].expand(-1, -1, 1, size))
    total = squares = counted = torch.zeros_like(received[..., 0])
    for rows, _, visible in layer.blocks():
        q, seen = layer.q[:, :, rows], visible.expand(-1, layer.heads, -1, -1).double()
        to_sink = seen.gather(-1, sink[..., None, None].expand(-1, -1, seen.shape[2], 1))[..., 0]
        sink_scores = (q * key).sum(-1)
        others = (q @ layer.k.mT * seen).sum(-1) - sink_scores * to_sink
        number = seen.sum(-1) - to_sink
        at = torch.arange(rows.start, rows.stop, device=sink.device)
        counts = to_sink * (number > 0) * (at != sink[..., None])
        margin = (sink_scores - others / number.clamp_min(1)) * counts
        total, squares = total + margin.sum(-1), squares + margin.square().sum(-1)
        counted = counted + counts.sum(-1)
    constancy = total / (counted * squares).sqrt()
    return torch.where(counted > 1, constancy, torch.nan)
