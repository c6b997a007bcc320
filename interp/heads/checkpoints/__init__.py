"""Scores of heads over the checkpoints of a training run: curves, change points and their order.

    import interp
    from interp.heads import checkpoints

    curve = interp.heads.emergence("bundled:induction", "induction").curve("induction")
    checkpoints.half_rise(curve.index, curve["L1H0"])

Importing this package does not load torch.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
