"""Models whose attention is written out in their own file, and models that cannot be read."""

from __future__ import annotations

from typing import Any

from .causal import BASE, GPT2, SPECIAL
from .encoder import BERT, ROBERTA
from .family import EAGER_ONLY, Family

NO_SDPA = {"no-sdpa": "outside the attention interface: read under eager attention only"}
BLOOM = {"vocab_size": 64, "hidden_size": 48, "n_layer": 2, "n_head": 6, "initializer_range": 0.06}
FALCON = BASE | SPECIAL | {"num_hidden_layers": 2}
FALCON_SDPA = {
    "no-sdpa": "its sdpa adds a bool mask to the scores when attentions are asked for: "
    "they come out non-causal and the logits change; load it eager"
}
GPT_NEO = {
    "vocab_size": 64,
    "hidden_size": 48,
    "num_layers": 2,
    "num_heads": 6,
    "intermediate_size": 64,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.04,
    **SPECIAL,
}
MPT = {
    "vocab_size": 64,
    "d_model": 48,
    "n_heads": 6,
    "n_layers": 2,
    "max_seq_len": 64,
    "expansion_ratio": 2,
    "initializer_range": 0.06,
}
XGLM = {
    "vocab_size": 64,
    "d_model": 48,
    "ffn_dim": 64,
    "num_layers": 2,
    "attention_heads": 6,
    "max_position_embeddings": 64,
    "init_std": 0.06,
}
XLNET = {
    "vocab_size": 64,
    "d_model": 48,
    "n_layer": 2,
    "n_head": 6,
    "d_inner": 64,
    "initializer_range": 0.08,
    "pad_token_id": 5,
}
DEBERTA = BASE | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
ROTARY = GPT2 | {"rotary_dim": 4}


def _legacy(
    name: str, features: tuple[str, ...], model_class: str, config: dict[str, Any], **more: Any
) -> Family:
    stack = "encoder" if "encoder" in features else "decoder"
    keys = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    layers = next(config[key] for key in keys if key in config)
    sites = tuple((stack, layer) for layer in range(layers))
    more["conventions"] = NO_SDPA | more.get("conventions", {})
    kind = () if "encoder" in features else ("causal",)
    features = ("legacy", "no-sdpa", *kind, *features)
    return Family(name, features, model_class, config, sites, attentions=EAGER_ONLY, **more)


def _refused(name: str, model_class: str, config: dict[str, Any], reason: str) -> Family:
    more = {"attentions": EAGER_ONLY, "conventions": NO_SDPA | {"refused": reason}}
    return Family(name, ("refused", "no-sdpa"), model_class, config, (), **more)


LEGACY = [
    _legacy("bloom", ("alibi", "fused-qkv", "output-bias"), "BloomForCausalLM", BLOOM),
    _legacy(
        "falcon",
        ("mqa", "rope", "fused-qkv"),
        "FalconForCausalLM",
        FALCON | {"multi_query": True},
        conventions=FALCON_SDPA,
    ),
    _legacy(
        "falcon_gqa",
        ("gqa", "rope", "fused-qkv"),
        "FalconForCausalLM",
        FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2},
        conventions=FALCON_SDPA,
    ),
    _legacy(
        "falcon_alibi",
        ("alibi", "fused-qkv", "output-bias"),
        "FalconForCausalLM",
        FALCON | {"alibi": True, "multi_query": False, "bias": True, "parallel_attn": False},
        conventions=FALCON_SDPA,
    ),
    _legacy("gptj", ("rope", "partial-rotary"), "GPTJForCausalLM", ROTARY),
    _legacy(
        "gpt_neo",
        ("sliding-window", "learned-positions", "output-bias", "scale"),
        "GPTNeoForCausalLM",
        GPT_NEO,
        conventions={"scale": "scores are not divided by sqrt(d_head)"},
    ),
    _legacy(
        "codegen",
        ("rope", "partial-rotary", "fused-qkv"),
        "CodeGenForCausalLM",
        {name: value for name, value in ROTARY.items() if name != "n_head"} | {"n_head": 4},
        conventions={"heads": "fused_qkv is laid out for four ranks: heads come in fours"},
    ),
    _legacy("mpt", ("alibi", "fused-qkv"), "MptForCausalLM", MPT),
    _legacy("xglm", ("sinusoid-positions", "qkv-bias", "output-bias"), "XGLMForCausalLM", XGLM),
    _legacy(
        "openai-gpt",
        ("learned-positions", "conv1d", "fused-qkv"),
        "OpenAIGPTLMHeadModel",
        {name: value for name, value in GPT2.items() if name not in SPECIAL},
        gain=8.0,  # its Conv1D is drawn at 0.02 whatever the config says
    ),
    _legacy(
        "mpnet",
        ("encoder", "relative-bias", "learned-positions", "qkv-bias"),
        "MPNetForMaskedLM",
        {name: value for name, value in ROBERTA.items() if name != "type_vocab_size"},
    ),
    _legacy(
        "roformer",
        ("encoder", "rope", "qkv-bias"),
        "RoFormerForMaskedLM",
        BERT | {"initializer_range": 0.015},
    ),
    _legacy(
        "deberta",
        ("encoder", "relative-bias", "disentangled", "fused-qkv"),
        "DebertaForMaskedLM",
        DEBERTA,
        conventions={"q-k": "scores are a sum of products: no single q and k give them"},
    ),
    _legacy(
        "deberta_v2",
        ("encoder", "relative-bias", "disentangled"),
        "DebertaV2ForMaskedLM",
        DEBERTA | {"position_buckets": 8, "max_relative_positions": 64, "share_att_key": True},
        conventions={"q-k": "scores are a sum of products: no single q and k give them"},
    ),
    _legacy(
        "xlnet",
        ("encoder", "relative-bias", "disentangled"),
        "XLNetLMHeadModel",
        XLNET,
        conventions={
            "q-k": "scores are a sum of products: no single q and k give them",
            "layout": "the module works in [query, batch, head, d_head]",
        },
    ),
]

REFUSED = [
    _refused(
        "fnet",
        "FNetForMaskedLM",
        {
            "vocab_size": 64,
            "hidden_size": 48,
            "num_hidden_layers": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 64,
        },
        "Fourier transforms in place of attention",
    ),
    _refused(
        "squeezebert",
        "SqueezeBertForMaskedLM",
        BERT | {"embedding_size": 48},
        "grouped convolutions over [channel, position] in place of projections",
    ),
    _refused(
        "yoso",
        "YosoForMaskedLM",
        BERT,
        "attention by hashing or its expectation: there is no softmax over keys",
    ),
]
