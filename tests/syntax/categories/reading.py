"""A tokenizer of the texts that the categories write, and models whose heads read a category."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import interp
from interp.core.resources import folder
from interp.syntax import read_labelled_texts
from interp.syntax.categories._made import code_documents, people_texts, topic_texts

OWN = Path(__file__).parent / "texts.jsonl"
D, THETA = 32, 1e12  # of a head; the last pairs of channels hardly turn


def text_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word, number or sign; white space has none. `<s>` stands first."""
    files = [OWN, folder("data") / "treebank.conllu"]
    texts = [t for f in files for t in read_labelled_texts(f)]
    texts += [t for make in (code_documents, people_texts, topic_texts) for t in make(64, seed=0)]
    pieces = {p for t in texts for p in re.findall(r"\w+|[^\w\s]", t.text)}
    pieces |= {str(i) for i in range(100)}
    ids = {"<s>": 0, "<unk>": 1} | {p: i + 2 for i, p in enumerate(sorted(pieces))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "isolated")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>")


def category_model(group: Callable[[str], int | None], *, linked: bool = False) -> interp.Model:
    """A layer of four heads: the first reads a category, the second is even, two are random.

    Args:
        group: the group of a word, 0 to 3, or None.
        linked: the first head attends to words of the query's group; otherwise to all that have
            one.
    """
    tokenizer = text_tokenizer()
    words = tokenizer.get_vocab()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=D,
        max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    layer = model.model.layers[0]
    attention: Any = layer.self_attn
    with torch.no_grad():
        embedding = torch.zeros(len(words), 8)
        embedding[:, 4] = 1.0
        for word, i in words.items():
            at = group(word)
            if at is not None:
                embedding[i, at] = 1.0
        embedding[:, 5:] = 1e-3 * torch.randn(len(words), 3)
        model.model.embed_tokens.weight.copy_(embedding)
        for part in (attention.q_proj.weight, attention.k_proj.weight):
            part[: 2 * D] = 0
            part[2 * D :] *= 20
        slow = D // 2 - 4  # the slowest four pairs
        for channel in range(4):
            attention.k_proj.weight[slow + channel, channel] = 20.0
            attention.q_proj.weight[slow + channel, channel if linked else 4] = 20.0
    return interp.load(model, name="reads a category", tokenizer=tokenizer)
