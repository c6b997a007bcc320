"""A small decoder-only language model that takes any rule of the zoo as its attention."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from interp.core.errors import OptionError
from interp.model.mixers.mixer import register_mixer
from training.forms import rule_class
from training.forms.mixer import VariantMixer
from training.forms.rule import Rule, RuleShape, Stream


class VariantConfig(PretrainedConfig):
    """Config: the name of the rule and the sizes."""

    model_type = "attention_variant"

    def __init__(
        self,
        variant: str = "plain_softmax",
        vocab_size: int = 64,
        hidden_size: int = 32,
        num_hidden_layers: int = 2,
        num_attention_heads: int = 4,
        head_dim: int | None = None,
        max_position_embeddings: int = 256,
        mlp: bool = True,
        **more: Any,
    ):
        self.variant, self.vocab_size, self.hidden_size = variant, vocab_size, hidden_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.head_dim = head_dim or hidden_size // num_attention_heads
        self.max_position_embeddings, self.mlp = max_position_embeddings, mlp
        super().__init__(**more)


class VariantAttention(nn.Module):
    """Attention by a rule; two identities let observers see its tensors and its z."""

    rule: Any

    def __init__(self, config: VariantConfig, layer: int, rule: type[Rule] | None = None):
        super().__init__()
        shape = RuleShape(
            config.hidden_size,
            config.num_attention_heads,
            config.head_dim,
            config.max_position_embeddings,
            layer,
        )
        self.kind = config.variant.replace("_", " ")
        self.rule = (rule or rule_class(config.variant))(shape)
        self.projected, self.mixed = nn.Identity(), nn.Identity()
        self.out = nn.Linear(self.rule.d_out, config.hidden_size, bias=False)

    def forward(self, x: Stream, context: Any = None) -> Stream:
        """Return what the layer adds to the residual stream."""
        rule = self.rule
        given = self.projected(rule.prepare(x) if context is None else rule.within(x, context))
        z = self.mixed(self.rule.mix(given))
        return self.rule.finish(self.out(self.rule.after(z, given)), given)


class VariantBlock(nn.Module):
    """Attention and MLP, each after a norm and added to the stream."""

    def __init__(self, config: VariantConfig, layer: int, rule: type[Rule] | None = None):
        super().__init__()
        d_model = config.hidden_size
        self.norm, self.attention = nn.RMSNorm(d_model), VariantAttention(config, layer, rule)
        self.mlp_norm = nn.RMSNorm(d_model) if config.mlp else None
        self.mlp = (
            nn.Sequential(
                nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
            )
            if config.mlp
            else None
        )

    def forward(self, x: Stream, context: Any = None) -> Stream:
        """Return the stream after this block."""
        x = x + self.attention(self.norm(x), context)
        if self.mlp is None or self.mlp_norm is None:
            return x
        return x + self.mlp(self.mlp_norm(x))


class VariantForCausalLM(PreTrainedModel):
    """Language model whose attention is a rule of the zoo, with learned positions or the rule's."""

    config_class = VariantConfig

    def __init__(self, config: VariantConfig):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        longest, own = config.max_position_embeddings, rule_class(config.variant).own_positions
        self.positions = None if own else nn.Embedding(longest, config.hidden_size)
        self.blocks = nn.ModuleList(
            VariantBlock(config, i) for i in range(config.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(config.hidden_size)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.3)

    def get_input_embeddings(self) -> nn.Module:
        """Return the table of token embeddings."""
        return self.embed

    def get_output_embeddings(self) -> nn.Module:
        """Return the unembedding."""
        return self.head

    def forward(
        self,
        input_ids: Int[Tensor, "batch pos"],
        attention_mask: Int[Tensor, "batch pos"] | None = None,
        **_: Any,
    ) -> CausalLMOutput:
        """Return the logits."""
        if attention_mask is not None and not bool(attention_mask.all()):
            left = bool((attention_mask[:, 1:] > attention_mask[:, :-1]).any())
            if left or not self.blocks[0].attention.rule.causal:  # type: ignore[union-attr]
                raise OptionError(
                    f"the attention variant {self.config.variant!r} takes padding on the right "
                    "of causal maps only; run prompts of one length together"
                )
        x = self.embed(input_ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.blocks:
            x = block(x)
        logits: Float[Tensor, "batch pos d_vocab"] = self.head(self.norm(x))
        return CausalLMOutput(logits=logits)  # type: ignore[arg-type]


register_mixer(VariantMixer)
AutoConfig.register(VariantConfig.model_type, VariantConfig, exist_ok=True)
AutoModelForCausalLM.register(VariantConfig, VariantForCausalLM, exist_ok=True)
