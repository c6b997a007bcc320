from .direct import DirectLogits, direct_logit_attribution
from .encoder_layers import DecoderLens, decoder_lens, encoder_states
from .logit import LogitLens, logit_lens

__all__ = [
    "DecoderLens",
    "DirectLogits",
    "LogitLens",
    "decoder_lens",
    "direct_logit_attribution",
    "encoder_states",
    "logit_lens",
]
