"""Sentences with chosen trees, attention with chosen heads, and a word-level tokenizer."""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from interp.syntax.attention import WordAttention
from interp.syntax.treebank import Sentence, Treebank


def sentence(heads, relations=None, words=None, line=1) -> Sentence:
    n = len(heads)
    words = words or tuple(f"w{i}" for i in range(n))
    relations = relations or tuple("root" if h < 0 else "dep" for h in heads)
    starts = np.cumsum([0, *(len(w) + 1 for w in words[:-1])])
    spans = tuple((int(a), int(a) + len(w)) for a, w in zip(starts, words, strict=True))
    return Sentence(
        tuple(words), tuple(heads), tuple(relations), ("X",) * n, " ".join(words), spans, line=line
    )


def random_tree(rng, n):
    """Heads of a random tree over n words, its root anywhere."""
    order = rng.permutation(n)
    heads = np.full(n, -1)
    for at in range(1, n):
        heads[order[at]] = order[rng.integers(at)]
    return tuple(int(h) for h in heads)


def random_bank(n_sentences, *, seed=0, low=3, high=12, names=("a", "b", "c")) -> Treebank:
    """Random trees; a word's relation is drawn too."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(n_sentences):
        n = int(rng.integers(low, high))
        heads = random_tree(rng, n)
        relations = ["root" if h < 0 else str(rng.choice(names)) for h in heads]
        words = [f"v{int(x)}" for x in rng.integers(0, 40, n)]
        out.append(sentence(heads, relations, words, line=i))
    return Treebank("random", tuple(out), "0" * 64)


def attention(bank: Treebank, makers) -> WordAttention:
    """Attention of one head per maker: `maker(sentence, rng) -> [word, word]`."""
    rng = np.random.default_rng(7)
    values = []
    for s in bank:
        value = np.stack([make(s, rng) for make in makers]).astype(np.float32)
        value[:, np.arange(len(s)), np.arange(len(s))] = 0
        values.append(value)
    names = tuple(f"L0H{h}" for h in range(len(makers)))
    places = tuple(("encoder", 0, h) for h in range(len(makers)))
    return WordAttention(tuple(bank), tuple(values), names, places, {"read": len(bank)})


def gold(s, rng=None):
    """Every word attends to its head."""
    out = np.zeros((len(s), len(s)))
    for w, h in enumerate(s.heads):
        if h >= 0:
            out[w, h] = 1
    return out


def turned(s, rng=None):
    """Every head attends to its dependents."""
    return gold(s).T


def previous(s, rng=None):
    """Every word attends to the one before it."""
    return np.eye(len(s), k=-1)


def noise(s, rng):
    """Nothing to be found."""
    return rng.random((len(s), len(s)))


def only(name):
    """Words of one relation attend to their head, the others at random."""

    def make(s, rng):
        out = rng.random((len(s), len(s)))
        for w, (h, r) in enumerate(zip(s.heads, s.relations, strict=True)):
            if r == name:
                out[w] = 0
                out[w, h] = 1
        return out

    return make


def word_tokenizer(words, *, offset=1, size=None) -> PreTrainedTokenizerFast:
    """A fast tokenizer with one id per word, split at spaces; `[UNK]` is id 0."""
    ids = {"[UNK]": 0} | {w: i + offset for i, w in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
