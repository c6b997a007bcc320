"""Bidirectional text and sound encoders that go through the attention interface."""

from __future__ import annotations

from typing import Any

from .causal import BASE
from .family import Family

BERT = BASE | {"type_vocab_size": 2}
ROBERTA = BERT | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
NARROW = {"embedding_size": 24, "initializer_range": 0.1}
ALIKE = ("learned-positions", "qkv-bias", "output-bias")


def _encoder(
    name: str, features: tuple[str, ...], model_class: str, config: dict[str, Any], **more: Any
) -> Family:
    layers = config.get("num_hidden_layers") or config["n_layers"]
    sites = tuple(("encoder", layer) for layer in range(layers))
    return Family(name, ("encoder", *features), model_class, config, sites, **more)


ENCODERS = [
    _encoder("bert", ALIKE, "BertForMaskedLM", BERT),
    _encoder("roberta", ALIKE, "RobertaForMaskedLM", ROBERTA),
    _encoder("xlm_roberta", ALIKE, "XLMRobertaForMaskedLM", ROBERTA),
    _encoder("electra", ALIKE, "ElectraForMaskedLM", BERT | NARROW),
    _encoder(
        "distilbert",
        ALIKE,
        "DistilBertForMaskedLM",
        {
            "vocab_size": 64,
            "dim": 48,
            "n_layers": 3,
            "n_heads": 6,
            "hidden_dim": 64,
            "max_position_embeddings": 64,
            "initializer_range": 0.06,
        },
    ),
    _encoder(
        "modernbert",
        ("rope", "sliding-window", "fused-qkv"),
        "ModernBertForMaskedLM",
        BASE
        | {
            "local_attention": 8,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            **dict.fromkeys(("bos_token_id", "cls_token_id"), 1),
            **dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
        },
        conventions={"window": "local_attention 8 shows four keys to either side"},
    ),
    _encoder(
        "albert",
        (*ALIKE, "shared-module"),
        "AlbertForMaskedLM",
        BERT | NARROW,
        conventions={"shared-module": "one module is called three times: a layer is a call index"},
    ),
    _encoder(
        "wav2vec2",
        ("audio", "qkv-bias", "output-bias"),
        "Wav2Vec2ForCTC",
        BASE
        | {
            "num_hidden_layers": 2,
            "conv_dim": [16, 16],
            "conv_kernel": [4, 2],
            "conv_stride": [4, 2],
            "feat_extract_norm": "layer",
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "layerdrop": 0.0,
            "apply_spec_augment": False,
        },
        kind="audio",
        paddings=(None, "right"),
        conventions={"padding": "the mask over sound is read as a length: on the right only"},
    ),
]
