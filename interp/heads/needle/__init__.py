"""Needle-in-a-haystack prompts, and the heads that copy the needle.

    from interp.heads import needle

    instances = needle.ids_instances(model, needles=8, lengths=(256, 1024), depths=(0, 0.5, 1))
    copies = needle.copy_paste(model, instances)     # every head in every instance
    copies.score()                                   # mean over instances, per (layer, head)
    needle.selection_stability(copies)               # stability of the choice over parts

The experiments `retrieval` and `qr_retrieval` wrap these functions with options and a command.
Importing this package does not load torch.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
