"""A planted model that writes the words it hears, with a known place for every head.

An ordinary `WhisperForConditionalGeneration` with its tokenizer and feature extractor. A word is a
tone; recordings count upwards from "one", so that each word says which comes next.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
RATE, HOP, SECONDS = 16_000, 160, 4  # samples per second, per frame; length of the input
START, END, FIRST = 1, 2, 4  # token ids; those of words begin at FIRST
BANDS, WIDTH, HEADS, LAYERS = 20, 48, 4, 2
_RAW, _SOUND = 14, 24  # dimensions of tones before and after the last encoder layer


@dataclass(frozen=True, eq=False)
class SpokenWords:
    """The planted model and its heads, as (layer, head) of the cross attention.

    Args:
        model: the model.
        processor: its feature extractor and tokenizer.
        emits: attends to the tone of the next word, from the row that emits it, and writes it.
        fed: attends to the tone of the word that its row is fed, and writes nothing.
        decoy: attends to the tone after the next one and writes nothing.
    """

    model: Any
    processor: Any
    emits: tuple[int, int] = (1, 2)
    fed: tuple[int, int] = (0, 1)
    decoy: tuple[int, int] = (1, 0)

    def sounds(
        self, n: int = 8, seed: int = 0, *, pauses: bool = False
    ) -> list[tuple[Float[np.ndarray, " sample"], list[tuple[str, float]]]]:
        """Return n recordings, each with its words and the seconds at which they begin."""
        draw = np.random.default_rng(seed)
        recordings = []
        for _ in range(n):
            wave = [np.zeros(int(draw.integers(4, 30)) * 2 * HOP * pauses)]
            words: list[tuple[str, float]] = []
            for at in range(int(draw.integers(4, 7))):
                words.append((WORDS[at], sum(map(len, wave)) / RATE))
                time = np.arange(int(draw.integers(6, 24)) * 2 * HOP) / RATE
                wave.append(0.5 * np.sin(2 * np.pi * _pitch(self.processor, at) * time))
                wave.append(np.zeros(int(draw.integers(0, 5)) * 2 * HOP * pauses))
            recordings.append((np.concatenate(wave)[: RATE * SECONDS], words))
        return recordings

    def save(self, folder: str | os.PathLike, n: int = 8, seed: int = 0) -> Path:
        """Write the model, and n recordings as .wav files, which `recordings.jsonl` lists."""
        import json
        import wave

        folder = Path(folder)
        self.model.save_pretrained(folder)
        self.processor.save_pretrained(folder)
        lines = []
        for at, (sound, words) in enumerate(self.sounds(n, seed)):
            name = f"{at}.wav"
            with wave.open(str(folder / name), "wb") as file:
                file.setparams((1, 2, RATE, 0, "NONE", ""))
                file.writeframes((sound * 32767).astype("<i2").tobytes())
            text = " ".join(word for word, _ in words)
            lines.append(json.dumps({"audio": name, "text": text, "words": words}))
        listed = folder / "recordings.jsonl"
        listed.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return listed


def spoken_words() -> SpokenWords:
    """Build the planted model."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=FIRST + len(WORDS),
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=8,
        decoder_ffn_dim=4,
        num_mel_bins=BANDS,
        max_source_positions=RATE * SECONDS // HOP // 2,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=START,
        eos_token_id=END,
        decoder_start_token_id=START,
        begin_suppress_tokens=None,
        suppress_tokens=None,
    )
    with torch.random.fork_rng(devices=[]):
        model = WhisperForConditionalGeneration._from_config(config, dtype=torch.float32).eval()
    processor = _processor()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(float("norm" in name and name.endswith("weight")))
        planted = SpokenWords(model, processor)
        _encoder(model.model.encoder)
        _decoder(model.model.decoder, planted)
    return planted


def _processor() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, WhisperFeatureExtractor, WhisperProcessor

    names = ["<pad>", "<s>", "</s>", "<unk>", *WORDS]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(names)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", START), ("</s>", END)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    sound = WhisperFeatureExtractor(
        feature_size=BANDS, sampling_rate=RATE, hop_length=HOP, n_fft=400, chunk_length=SECONDS
    )
    return WhisperProcessor(sound, tokenizer)


def _pitch(processor: Any, word: int) -> float:
    """Return the frequency of a word's tone: the centre of its band."""
    filters = np.asarray(processor.feature_extractor.mel_filters)
    bins = np.linspace(0, RATE / 2, len(filters))
    return float(bins[filters[:, _band(word)].argmax()])


def _band(word: int) -> int:
    return 2 + 2 * word


def _encoder(encoder: Any) -> None:
    """Let each position hold which tone sounds: raw at first, readable after the last layer."""
    last = encoder.layers[-1]
    for word in range(len(WORDS)):
        # the band of a tone is above 1.1 (log energies, scaled), others below 0.9 even at an onset
        encoder.conv1.weight[word, _band(word), 1] = 8
        encoder.conv2.weight[_RAW + word, word, 1] = 1
        last.fc1.weight[word, _RAW + word] = 1
        last.fc2.weight[_SOUND + word, word] = 1
    encoder.conv1.bias[: len(WORDS)] = -8


def _decoder(decoder: Any, made: SpokenWords) -> None:
    tokens = decoder.embed_tokens.weight
    for token in range(len(tokens)):
        tokens[token, token] = 1
    size = WIDTH // HEADS
    for (layer, head), ahead in ((made.emits, 1), (made.fed, 0), (made.decoy, 2)):
        attention = decoder.layers[layer].encoder_attn
        for word in range(len(WORDS)):
            at = head * size + word
            before = FIRST + word - ahead
            attention.q_proj.weight[at, START if before < FIRST else before] = 1
            attention.k_proj.weight[at, _SOUND + word] = 1
            if (layer, head) == made.emits:
                attention.v_proj.weight[at, _SOUND + word] = 1
                attention.out_proj.weight[FIRST + word, at] = 1
