"""Spans of tokens that attend to themselves."""

from interp.heads.declaration import measurement


@measurement(unit="attention mass", low=0.0, high=0.5)
def triangle_spans(layer, *, width: int = 4):
    """Unevenness of attention across successive positions: triangles on the diagonal.

    For a position, the attention of it and the next queries on the keys before it, within `width`
    tokens on both sides, as a share of each query's attention on all these keys. The score is the
    standard deviation over positions. 0 for a window or even attention, which cross every position
    alike; large where spans of tokens attend to themselves and not across their ends.

    Not for: prompts shorter than three times the width, which have no score, and heads with a sink
    only: what they attend to nearby is small, and its share is noise.

    Options:
        width: tokens on each side of a position.

    Reference: Tang et al. 2024, "Ltri-LLM: Streaming Long Context Inference for LLMs with
    Training-Free Dynamic Triangular Attention Pattern" (arXiv 2412.04757; there by voting, to cut
    the context).
    """
    from interp.heads.geometry._spans import crossing_spread

    return crossing_spread(layer, width)
