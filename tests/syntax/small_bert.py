"""A tiny random BERT with a WordPiece tokenizer of its own, in a folder as people have them."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def save_bert(folder: Path, words: list[str], *, seed: int = 0, layers: int = 2) -> Path:
    """Save the model; words of more than four letters are two pieces.

    Args:
        words: those that the tokenizer knows; others come as letters.
    """
    pieces = dict.fromkeys(SPECIAL)
    for word in words:
        low = word.lower()
        pieces |= dict.fromkeys([low] if len(low) <= 4 else [low[:4], "##" + low[4:]])
        pieces |= dict.fromkeys([*low, *("##" + letter for letter in low)])
    ids = {piece: at for at, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=60))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=48,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    config = BertConfig(
        vocab_size=len(ids),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=48,
        attn_implementation="eager",
    )
    torch.manual_seed(seed)
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
