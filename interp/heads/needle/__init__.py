"""Needles in haystacks: prompts that hide something, and which heads copy it out again.

    from interp.heads import needle

    instances = needle.ids_instances(model, needles=8, lengths=(256, 1024), depths=(0, 0.5, 1))
    found = needle.copy_paste(model, instances)      # every head in every instance
    found.score()                                    # mean over instances, per (layer, head)
    needle.selection_stability(found)              # the same from parts of the instances

The experiments `retrieval` and `qr_retrieval` are these with options and a command. Importing this
loads no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
