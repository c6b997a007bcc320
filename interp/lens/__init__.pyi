from .direct import direct_logit_attribution
from .direct_many import direct_logits
from .encoder_layers import decoder_lens
from .logit import logit_lens
from .tuned import tuned_lens

__all__ = [
    "decoder_lens",
    "direct_logit_attribution",
    "direct_logits",
    "logit_lens",
    "tuned_lens",
]
