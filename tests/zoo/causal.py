"""Decoders that go through the attention interface."""

from __future__ import annotations

from typing import Any

from .family import EAGER_ONLY, Family

# Six heads of width eight; initialisations wide enough that scores differ by about one unit.
WIDTH: dict[str, Any] = {"vocab_size": 64, "hidden_size": 48, "initializer_range": 0.06}
LAYERS = {"num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 64}
BASE = WIDTH | LAYERS | {"max_position_embeddings": 64, "pad_token_id": 0}
GQA = BASE | {"num_key_value_heads": 2}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2}
LLAMA = GQA | SPECIAL
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GPT2 = {
    "vocab_size": 64,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 6,
    "n_positions": 64,
    "initializer_range": 0.06,
    **SPECIAL,
}
MLA = {
    "num_key_value_heads": 6,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 16,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}


def _causal(
    name: str, features: tuple[str, ...], model_class: str, config: dict[str, Any], **more: Any
) -> Family:
    layers = more.pop("layers", range(config.get("num_hidden_layers", config.get("n_layer", 0))))
    sites = tuple(("decoder", layer) for layer in layers)
    return Family(name, ("causal", *features), model_class, config, sites, **more)


GATED = {"gated": "the head output is gate * z: the input of o_proj is not z"}

CAUSAL = [
    _causal("gpt2", ("learned-positions", "conv1d"), "GPT2LMHeadModel", GPT2),
    _causal("llama", ("gqa", "rope"), "LlamaForCausalLM", LLAMA),
    _causal("qwen2", ("gqa", "rope", "qkv-bias"), "Qwen2ForCausalLM", LLAMA),
    _causal(
        "qwen2_sliding",
        ("gqa", "rope", "sliding-window"),
        "Qwen2ForCausalLM",
        LLAMA | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    _causal(
        "mistral_sliding",
        ("gqa", "rope", "sliding-window"),
        "MistralForCausalLM",
        LLAMA | {"sliding_window": 4},
    ),
    _causal(
        "qwen3",
        ("gqa", "rope", "qk-norm", "head-dim"),
        "Qwen3ForCausalLM",
        LLAMA | {"head_dim": 12},
    ),
    _causal(
        "mixtral", ("gqa", "rope", "moe"), "MixtralForCausalLM", LLAMA | {"num_local_experts": 4}
    ),
    _causal(
        "qwen3_moe",
        ("gqa", "rope", "qk-norm", "moe"),
        "Qwen3MoeForCausalLM",
        LLAMA | EXPERTS | {"head_dim": 8},
    ),
    _causal("phi3", ("gqa", "rope", "fused-qkv"), "Phi3ForCausalLM", LLAMA),
    _causal("olmo2", ("gqa", "rope", "qk-norm"), "Olmo2ForCausalLM", LLAMA),
    _causal("cohere", ("gqa", "rope"), "CohereForCausalLM", LLAMA),
    _causal(
        "stablelm",
        ("gqa", "rope", "partial-rotary", "qkv-bias"),
        "StableLmForCausalLM",
        LLAMA
        | {
            "use_qkv_bias": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    _causal(
        "starcoder2", ("gqa", "rope", "qkv-bias", "output-bias"), "Starcoder2ForCausalLM", LLAMA
    ),
    _causal(
        "granite",
        ("gqa", "rope", "scale"),
        "GraniteForCausalLM",
        LLAMA
        | {
            "attention_multiplier": 0.5,
            "residual_multiplier": 0.7,
            "logits_scaling": 2.0,
            "embedding_multiplier": 3.0,
        },
    ),
    _causal(
        "smollm3",
        ("gqa", "rope", "nope"),
        "SmolLM3ForCausalLM",
        LLAMA | {"no_rope_layers": [1, 1, 0]},
    ),
    _causal(
        "gemma",
        ("gqa", "rope", "head-dim"),
        "GemmaForCausalLM",
        LLAMA | {"head_dim": 12},
    ),
    _causal(
        "gemma2",
        ("gqa", "rope", "head-dim", "softcap", "sliding-window", "scale", "no-sdpa"),
        "Gemma2ForCausalLM",
        LLAMA
        | {
            "head_dim": 12,
            "query_pre_attn_scalar": 16,
            "sliding_window": 4,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 5.0,
        },
        attentions=EAGER_ONLY,
        conventions={"no-sdpa": "transformers refuses it: no fused function takes the soft cap"},
    ),
    _causal(
        "gemma3",
        ("gqa", "rope", "head-dim", "qk-norm", "sliding-window", "scale"),
        "Gemma3ForCausalLM",
        LLAMA
        | {
            "head_dim": 12,
            "query_pre_attn_scalar": 16,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        },
    ),
    _causal(
        "gpt_oss",
        ("gqa", "rope", "head-dim", "sinks", "sliding-window", "moe", "output-bias", "no-sdpa"),
        "GptOssForCausalLM",
        LLAMA
        | {
            "head_dim": 12,
            "sliding_window": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        attentions=EAGER_ONLY,
        conventions={
            "no-sdpa": "transformers refuses it: no fused function takes the sinks",
            "rows": "a row sums to less than one: the sink takes the rest",
        },
    ),
    _causal(
        "deepseek_v3", ("mla", "rope", "head-dim", "moe"), "DeepseekV3ForCausalLM", LLAMA | MLA
    ),
    _causal(
        "deepseek_v32",
        ("mla", "rope", "head-dim", "moe", "sparse"),
        "DeepseekV32ForCausalLM",
        LLAMA
        | MLA
        | {"num_hidden_layers": 2, "index_topk": 3, "index_n_heads": 2, "index_head_dim": 16},
        conventions={"sparse": "each query sees the three keys that its indexer picks"},
    ),
    _causal(
        "llama4_text",
        ("gqa", "rope", "nope", "chunked", "qk-norm", "moe"),
        "Llama4ForCausalLM",
        LLAMA
        | {
            "head_dim": 8,
            "intermediate_size_mlp": 64,
            "num_local_experts": 2,
            "attention_chunk_size": 4,
            "no_rope_layers": [1, 1, 0],
            "floor_scale": 4,
        },
    ),
    _causal("gpt_bigcode", ("mqa", "learned-positions"), "GPTBigCodeForCausalLM", GPT2),
    _causal(
        "gpt_neox",
        ("rope", "partial-rotary", "fused-qkv", "output-bias"),
        "GPTNeoXForCausalLM",
        BASE | SPECIAL,
    ),
    _causal(
        "phi",
        ("rope", "partial-rotary", "qkv-bias", "output-bias"),
        "PhiForCausalLM",
        BASE | SPECIAL,
    ),
    _causal(
        "opt",
        ("learned-positions", "output-bias"),
        "OPTForCausalLM",
        {
            "vocab_size": 64,
            "hidden_size": 48,
            "word_embed_proj_dim": 48,
            "init_std": 0.06,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "ffn_dim": 64,
            "max_position_embeddings": 64,
            "pad_token_id": 1,
        },
    ),
    _causal("biogpt", ("learned-positions", "output-bias"), "BioGptForCausalLM", BASE | SPECIAL),
    _causal(
        "ctrl",
        ("sinusoid-positions", "output-bias"),
        "CTRLLMHeadModel",
        {k: v for k, v in GPT2.items() if k not in SPECIAL} | {"n_layer": 2, "dff": 64},
    ),
    _causal(
        "jamba",
        ("gqa", "hybrid", "nope", "moe"),
        "JambaForCausalLM",
        LLAMA
        | {
            "attn_layer_period": 3,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "num_experts": 2,
            "mamba_d_state": 4,
        },
        layers=[1],
    ),
    _causal(
        "qwen3_next",
        ("gqa", "hybrid", "rope", "partial-rotary", "qk-norm", "head-dim", "gated", "moe"),
        "Qwen3NextForCausalLM",
        LLAMA
        | EXPERTS
        | {
            "head_dim": 12,
            "shared_expert_intermediate_size": 16,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        },
        layers=[1],
        conventions=GATED,
    ),
]
