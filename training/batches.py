"""Training data of the bundled models: generated text, and repeats of random tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Int
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from interp.bundled.special_tokens import BOS, SPECIAL, UNKNOWN

# Space and line break as the byte-level alphabet writes them, and what ASCII prints.
ALPHABET = ["Ġ", "Ċ", *map(chr, range(33, 127))]


def build_tokenizer(texts: Iterable[str], vocab: int, context: int) -> PreTrainedTokenizerFast:
    """A BPE tokenizer of at most `vocab` tokens, which puts <s> before every text.

    Its alphabet is ASCII, so that any plain English can be read; a byte beyond it becomes <unk>.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNKNOWN]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=ALPHABET,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", BOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )


class Corpus:
    """Paragraphs as one stream of ids, cut into rows that start at a paragraph."""

    def __init__(self, texts: list[str], tokenizer: PreTrainedTokenizerFast):
        rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
        newline = tokenizer("\n", add_special_tokens=False)["input_ids"]
        joined = [np.array([*row, *newline], dtype=np.int64) for row in rows]
        self.ids = np.concatenate(joined)
        self.starts = np.cumsum([0, *map(len, joined[:-1])])

    @property
    def sha256(self) -> str:
        """Hash of the token stream."""
        return hashlib.sha256(self.ids.tobytes()).hexdigest()

    def rows(
        self, rng: np.random.Generator, number: int, length: int
    ) -> Int[np.ndarray, "row pos"]:
        """Rows of `length` ids: <s>, then text from the start of a random paragraph."""
        fitting = self.starts[self.starts <= len(self.ids) - length]
        start = rng.choice(fitting, size=number)
        ids = self.ids[start[:, None] + np.arange(length - 1)]
        return np.concatenate([np.full((number, 1), BOS), ids], axis=1)


def repeats(
    rng: np.random.Generator, number: int, length: int, vocab: int
) -> tuple[Int[np.ndarray, "row pos"], Bool[np.ndarray, "row pos"]]:
    """Rows of <s> and a block of random tokens said again and again.

    The block's length varies from row to row, so that no fixed distance will do. Also returned:
    which tokens can be predicted from what came before (the second of each pair of copied ones).
    """
    ids = rng.integers(len(SPECIAL), vocab, size=(number, length))
    ids[:, 0] = BOS
    known = np.zeros((number, length), dtype=bool)
    for row, copied in zip(ids, known, strict=True):
        period = int(rng.integers(5, length // 2))
        block = row[1 : 1 + period].copy()
        for at in range(1 + period, length, period):
            row[at : at + period] = block[: length - at]
        copied[2 + period :] = True
    return ids, known


def two_copies(
    rng: np.random.Generator, number: int, period: int, vocab: int
) -> Int[np.ndarray, "row pos"]:
    """<s> + r + r with the tokens of r distinct: what repeats are measured on."""
    order = rng.permuted(np.tile(np.arange(len(SPECIAL), vocab), (number, 1)), axis=1)
    block = order[:, :period]
    return np.concatenate([np.full((number, 1), BOS), block, block], axis=1)
