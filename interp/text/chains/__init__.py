"""Sentences of long texts: which ones later text attends to, and which ones it depends on.

    from interp.text import chains

    chain = chains.Chain.of_text(model, text, question="So the answer is", answer=" 42")
    chains.receiver_heads(model, [chain]).top(20)     # heads that attend to few sentences
    chains.thought_anchors(model, [chain])            # attention, suppression and resampling

The command is `interp texts anchors`. Importing this package does not load torch.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
