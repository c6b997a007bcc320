"""Encoder-decoder models: three kinds of attention, of which one looks at the other stack."""

from __future__ import annotations

from typing import Any

from .family import Family, Site

LAYERS = 2
BART = {
    "vocab_size": 64,
    "d_model": 48,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "init_std": 0.06,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
T5 = {
    "vocab_size": 64,
    "d_model": 48,
    "d_kv": 12,
    "d_ff": 64,
    "num_layers": LAYERS,
    "num_heads": 6,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
LEARNED = ("learned-positions", "qkv-bias", "output-bias")
SINUSOID = ("sinusoid-positions", "qkv-bias", "output-bias")


def _sites(encoder: int, decoder: int) -> tuple[Site, ...]:
    """Call order: the whole encoder, then own and cross attention of each decoder layer."""
    looks = ((stack, layer) for layer in range(decoder) for stack in ("decoder", "cross"))
    return (*(("encoder", layer) for layer in range(encoder)), *looks)


def _seq2seq(
    name: str, features: tuple[str, ...], model_class: str, config: dict[str, Any], **more: Any
) -> Family:
    features = ("encoder-decoder", "cross-attention", *features)
    more.setdefault("kind", "seq2seq")
    return Family(name, features, model_class, config, _sites(LAYERS, LAYERS), **more)


SEQ2SEQ = [
    _seq2seq(
        "t5",
        ("relative-bias", "head-dim", "scale"),
        "T5ForConditionalGeneration",
        T5,
        gain=1.5,  # its scale is one: wider weights would leave each softmax one key
        conventions={"scale": "scores are not divided by sqrt(d_head); only layer 0 has the bias"},
    ),
    _seq2seq("bart", LEARNED, "BartForConditionalGeneration", BART),
    _seq2seq("mbart", LEARNED, "MBartForConditionalGeneration", BART),
    _seq2seq("marian", SINUSOID, "MarianMTModel", BART),
    _seq2seq("pegasus", SINUSOID, "PegasusForConditionalGeneration", BART),
    _seq2seq(
        "m2m_100",
        SINUSOID,
        "M2M100ForConditionalGeneration",
        BART | {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},
    ),
    _seq2seq(
        "whisper",
        ("audio", *LEARNED),
        "WhisperForConditionalGeneration",
        {name: value for name, value in BART.items() if name != "max_position_embeddings"}
        | {"num_mel_bins": 8, "max_source_positions": 12, "max_target_positions": 64},
        kind="speech",
        conventions={
            "padding": "the encoder ignores a mask; only the decoder's tokens are padded",
            "length": "the encoder takes 24 frames, 12 positions, whatever length is asked for",
            "k-bias": "k_proj has no bias, q_proj and v_proj have one",
        },
    ),
]
