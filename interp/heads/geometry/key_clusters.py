"""Clusters of a head's keys."""

from interp.heads.declaration import measurement


@measurement(unit="clusters per key", low=0.0, high=1.0, requires=("qk", "self"), end="low")
def key_clusters(layer, *, radius: float = 0.7):
    """Clusters that a head's keys open as they arrive, over the number of keys.

    A key joins the nearest earlier representative within the radius, and opens a cluster
    otherwise. The radius is a share of the root mean square distance of the prompt's keys from
    their mean. Low for keys that a few representatives can stand for.

    Not for: comparing prompts of different lengths, or prompts with repeated tokens, whose keys
    are alike in the first layer for that reason.

    Options:
        radius: share of the root mean square distance from the mean.

    Reference: Zandieh et al. 2024, "SubGen: Token Generation in Sublinear Time and Memory" (arXiv
    2402.06082), its stream of keys.
    """
    from interp.heads.geometry._clusters import opened

    return opened(layer.k, radius).sum(-1).double() / layer.k.shape[2]
