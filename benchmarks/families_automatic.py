"""Tiny models of all text classes of transformers, by small values of whatever sizes they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto import modeling_auto

MOST = 4_000_000  # parameters of a model that counts as tiny
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "embedding_size": 32,
    "intermediate_size": 48,
    "d_ff": 48,
    "ffn_dim": 48,
    "d_inner": 48,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "n_inner": 48,
    "moe_intermediate_size": 16,
    "d_kv": 8,
    "shared_expert_intermediate_size": 16,
    "shared_intermediate_size": 16,
    "num_hidden_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "num_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_decoder_layers": 2,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "attention_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "max_seq_len": 64,
    "n_ctx": 64,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "rotary_dim": 4,
    "sliding_window": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "type_vocab_size": 2,
    "attention_window": 4,
    "block_size": 2,
    "num_random_blocks": 1,
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "initializer_range": 0.2,
}
TABLES = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
)


def families(
    taken: set[str], ids: Tensor
) -> Iterator[tuple[str, Callable[[], tuple[nn.Module, Mapping[str, Tensor]]]]]:
    """Yield names and builders of text classes.

    Args:
        taken: names of classes that are measured elsewhere.
        ids: tokens that the models are given.
    """
    for table in TABLES:
        for kind, names in getattr(modeling_auto, table).items():
            name = names if isinstance(names, str) else names[0]
            if name in taken or not hasattr(transformers, name) or several(name):
                continue
            taken = taken | {name}
            yield f"{kind} {name}", lambda n=name: tiny(n, ids)


def several(name: str) -> bool:
    """Return True if a class is for several modalities, or a pair of other models."""
    try:
        known = getattr(transformers, name).config_class().to_dict()
    except Exception:
        return False  # transformers raises anything here; counted as not configured
    parts = ("text_config", "vision_config", "audio_config", "encoder_config", "audio_encoder")
    return any(part in known for part in (*parts, "encoder", "decoder"))


def tiny(name: str, ids: Tensor) -> tuple[nn.Module, Mapping[str, Tensor]]:
    """Build a class with small sizes.

    Raises:
        ValueError: it stays large.
    """
    cls: Any = getattr(transformers, name)
    known = cls.config_class().to_dict()
    sizes = {k: v for k, v in SIZES.items() if k in known}
    if "qk_rope_head_dim" in known and "head_dim" in known:  # latent attention rotates that part
        sizes["head_dim"] = sizes["qk_rope_head_dim"]
    config = cls.config_class(**sizes)
    config.use_cache = False  # some caches refuse layers that the config gives by default
    with torch.device("meta"):
        count = sum(p.numel() for p in cls(config).parameters())
    if count > MOST:
        raise ValueError(f"{count} parameters with small sizes")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = cls(config).eval()
    inputs = {"input_ids": ids}
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = ids[:, :9]
    return model, inputs
