"""A random model whose tokens are the items of all ordered lists."""

from __future__ import annotations

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import interp
from interp.circuits.named._ordered import LISTS


def counting() -> interp.Model:
    words = list(dict.fromkeys(word for items, _ in LISTS.values() for word in items))
    ids = {"<s>": 0, "<unk>": 1} | {f" {word}": i + 2 for i, word in enumerate(words)}
    whole = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    whole.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w+"), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=whole, unk_token="<unk>", bos_token="<s>")
    config = LlamaConfig(
        vocab_size=len(ids),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=0,
        eos_token_id=None,
    )
    torch.manual_seed(3)
    return interp.load(LlamaForCausalLM(config).eval(), tokenizer=tokenizer, name="counting")
