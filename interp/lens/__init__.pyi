from .direct import DirectLogits, direct_logit_attribution
from .direct_many import direct_logits
from .logit import LogitLens, logit_lens
from .tuned import TunedLens, tuned_lens

__all__ = [
    "DirectLogits",
    "LogitLens",
    "TunedLens",
    "direct_logit_attribution",
    "direct_logits",
    "logit_lens",
    "tuned_lens",
]
