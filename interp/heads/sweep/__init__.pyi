from .scored_models import ScoreSweep as ScoreSweep
