"""Scores of heads over the checkpoints of a training run: curves, change points and their order.

    import interp
    from interp.heads import checkpoints

    curve = interp.heads.emergence("bundled:induction", "induction").curve("induction")
    checkpoints.half_rise(curve.index, curve["L1H0"])

Importing this package does not load torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
