"""A small recurrent translator whose target reads its source by a rule of cross attention."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import AutoConfig, PreTrainedModel
from transformers.modeling_outputs import Seq2SeqLMOutput

from interp.core.errors import OptionError
from training.forms.language_model import VariantAttention, VariantConfig


class VariantPairConfig(VariantConfig):
    """Config: the name of the rule and the sizes."""

    model_type = "attention_variant_pair"

    def __init__(self, variant: str = "source", num_attention_heads: int = 2, **more: Any):
        more |= {"is_encoder_decoder": True, "num_hidden_layers": 1}
        super().__init__(variant, num_attention_heads=num_attention_heads, **more)


class VariantForTranslation(PreTrainedModel):
    """Translator of Luong et al. (2015): recurrent in both sequences, attention between them.

    The source is read in both directions. The state of the target asks, and what it reads is
    joined with it: tanh(W_c z + W_h h) gives the logits. There is no table of positions, so that
    sequences may be longer than those of the training.
    """

    config_class = VariantPairConfig

    def __init__(self, config: VariantPairConfig):
        super().__init__(config)
        width = config.hidden_size
        self.embed = nn.Embedding(config.vocab_size, width)
        self.encoder = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.attention = VariantAttention(config, 0)
        self.joined = nn.Linear(width, width)
        self.head = nn.Linear(width, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.3)

    def get_input_embeddings(self) -> nn.Module:
        """Return the table of token embeddings, which both sequences share."""
        return self.embed

    def forward(
        self,
        input_ids: Int[Tensor, "batch source"],
        decoder_input_ids: Int[Tensor, "batch target"],
        attention_mask: Int[Tensor, "batch source"] | None = None,
        decoder_attention_mask: Int[Tensor, "batch target"] | None = None,
        labels: Int[Tensor, "batch target"] | None = None,
        **_: Any,
    ) -> Seq2SeqLMOutput:
        """Return the logits of the target, and the loss where labels are given."""
        for mask in (attention_mask, decoder_attention_mask):
            if mask is not None and bool((mask[:, 1:] > mask[:, :-1]).any()):
                raise OptionError(
                    f"the attention variant {self.config.variant!r} reads both sequences from "
                    "their first token on; pad them on the right"
                )
        real: Any = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        embedded = pack_padded_sequence(
            self.embed(input_ids), real.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        source = pad_packed_sequence(
            self.encoder(embedded)[0], batch_first=True, total_length=input_ids.shape[1]
        )[0]
        state = self.decoder(self.embed(decoder_input_ids))[0]
        read = self.attention(state, (source, real.bool()))
        logits = self.head(torch.tanh(read + self.joined(state)))
        loss: Any = None if labels is None else F.cross_entropy(logits.mT, labels)
        return Seq2SeqLMOutput(loss=loss, logits=logits)  # type: ignore[arg-type]


AutoConfig.register(VariantPairConfig.model_type, VariantPairConfig, exist_ok=True)
