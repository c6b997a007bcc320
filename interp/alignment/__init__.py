"""Cross attention of encoder-decoder models: word alignments, translation heads, speech, latency.

    from interp import alignment

    alignment.word_alignment("bundled:reorder", pairs)     # error of every head, with its null
    alignment.translation_heads("bundled:reorder", pairs)  # ablation beside confidence

    alignment.word_times(model, recordings)                # when each word is spoken

The commands are `interp study align` and `interp study speech`. Importing this package
does not load torch.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
