"""Entropy of attention as a share of its maximum."""

from interp.heads.declaration import measurement


@measurement(unit="share of the largest entropy", low=0.0, high=1.0, end="both")
def entropy_share(layer):
    """Entropy of a query's attention over that of even attention on the same keys.

    Averaged over queries that see at least two keys: 1 for even attention at any length (entropic
    overload), 0 for one key per query (collapse). Unlike `entropy` it can be compared between
    lengths, as in tests of a model beyond its trained length.

    Not for: concentration on a fixed number of keys, whose share falls with the length: see
    `budget`.

    Reference: Jha and Reagen 2024, "ReLU's Revival: On the Entropic Overload in Normalization-Free
    Large Language Models" (arXiv 2410.09637); over lengths, Wang et al. 2024, "Length
    Generalization of Causal Transformers without Position Encoding" (arXiv 2404.12224).
    """
    from interp.heads.layer import mean_of_rows
    from interp_kernels.reductions import Entropy

    even = layer.sees.double().clamp_min(2).log()
    return mean_of_rows(layer.reduce(Entropy()).double() / even, layer.sees > 1)
