"""Cross attention of encoder-decoder models: word alignments, translation heads, speech, latency.

    from interp import alignment

    alignment.word_alignment("bundled:reorder", pairs)     # error of every head, with its null
    alignment.translation_heads("bundled:reorder", pairs)  # ablation beside confidence

    alignment.word_times(model, recordings)                # when each word is spoken

The commands are `interp study align` and `interp study speech`. Importing this package
does not load torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
