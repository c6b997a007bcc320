from .direct import DirectLogits, direct_logit_attribution
from .logit import LogitLens, logit_lens

__all__ = [
    "DirectLogits",
    "LogitLens",
    "direct_logit_attribution",
    "logit_lens",
]
