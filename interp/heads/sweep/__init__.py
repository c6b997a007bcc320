"""Scores of many models: stored as they are computed, in processes, as a job array or on Ray.

    from interp.heads import sweep

    sweep.ScoreSweep.prepare(metrics=["induction"], out=folder, voice=voice, loading=loading)

The command is `interp score`. Importing this package does not load torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
