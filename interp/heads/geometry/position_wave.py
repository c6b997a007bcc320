"""Preference for distances that comes from rotary embedding alone."""

from interp.heads.declaration import measurement


@measurement(unit="nats", low=0.0, requires=("turns",))
def position_wave(layer):
    """Peak to trough of a head's scores by distance, for its mean query and mean key.

    The mean projections over the prompt, rotated to the last query and to every key before it, give
    a score for each distance, a waveform whose frequencies are set by the rotary base; the score is
    its largest value minus its smallest. 0 for a head whose means do not reach rotated channels,
    and for models without rotary embedding.

    Not for: preferences for positions that tokens carry in their content, such as learned position
    embeddings.

    Reference: Chen et al. 2023, "Fortify the Shortest Stave in Attention: Enhancing Context
    Awareness of Large Language Models for Effective Tool Use" (Attention Buckets, arXiv
    2312.04455).
    """
    import torch

    from interp.heads.geometry._waves import scores_by_distance

    wave = scores_by_distance(layer)
    if wave is None:
        return torch.full((len(layer.call.z), layer.heads), torch.nan)
    return (wave.amax(-1) - wave.amin(-1)).clamp_min(0)
