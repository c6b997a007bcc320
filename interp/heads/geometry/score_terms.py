"""Shares of contents and positions in attention scores that are sums of both."""

from interp.heads.declaration import measurement


@measurement(unit="share of the variance of scores", requires=("terms",))
def content_term(layer):
    """Share of the product of queries and keys in how scores tell keys apart.

    Covariance of the term with the scores over the keys that a query sees, summed over queries,
    over the variance of the scores: 1 if scores are this product alone. It is below 0 for a term
    that others outweigh. The shares of `content_term`, `content_to_position_term`,
    `position_to_content_term` and `position_term` sum to 1.

    Not for: positions that are rotated into queries and keys, or added to the embeddings: they
    are part of this product.

    Reference: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention" (arXiv
    2006.03654), equation 2.
    """
    from interp.heads.geometry._terms import shares_of_terms

    return shares_of_terms(layer)["content"]


@measurement(unit="share of the variance of scores", requires=("terms",))
def content_to_position_term(layer):
    """Share of products of queries and relative positions in how scores tell keys apart.

    How far a key lies decides, in a way that depends on the query's content: what DeBERTa calls
    content-to-position, and the positional term of XLNet and of Conformers. See `content_term`.

    Not for: biases that are the same for all contents: see `position_term`.

    Reference: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention" (arXiv
    2006.03654), equation 4.
    """
    from interp.heads.geometry._terms import shares_of_terms

    return shares_of_terms(layer)["content_to_position"]


@measurement(unit="share of the variance of scores", requires=("terms",))
def position_to_content_term(layer):
    """Share of products of keys and relative positions in how scores tell keys apart.

    What the key is decides, in a way that depends on how far it lies, but not on the query's
    content: what DeBERTa calls position-to-content. See `content_term`.

    Not for: keys that are preferred at any distance, such as sinks: their score is part of
    `content_term`.

    Reference: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention" (arXiv
    2006.03654), equation 4.
    """
    from interp.heads.geometry._terms import shares_of_terms

    return shares_of_terms(layer)["position_to_content"]


@measurement(unit="share of the variance of scores", requires=("terms",))
def position_term(layer):
    """Share of biases of position alone in how scores tell keys apart.

    Biases such as those of T5 and ALiBi, which no content changes. See `content_term`. 0 for
    models without a bias.

    Not for: positions that are rotated into queries and keys, or added to the embeddings.

    Reference: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified
    Text-to-Text Transformer" (arXiv 1910.10683), relative position embeddings.
    """
    from interp.heads.geometry._terms import shares_of_terms

    return shares_of_terms(layer)["position"]
