"""Small GPT-2 models with weights set by hand, for planted heads on texts.

The residual stream is a list of named subspaces; every coordinate is held twice, with both signs,
so that its mean is zero, and the variance epsilon is so large that every norm is the identity. A
model is then linear apart from its softmaxes and the ReLU of its MLPs, and what a head does can be
read from the arguments of `head`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import interp

EPSILON, GAIN = 2.0**24, 2.0**12
REST = 15.0  # score of the first token, to which a head without a match attends
MATCH = 30.0
NOISE = 3e-4  # small beside the scores of planted heads, which sum over a subspace


class Handmade:
    """A model under construction.

    Args:
        tokenizer: gives the size of the vocabulary; the first token of a prompt is `<s>`, id 0.
        spaces: widths of the subspaces by name; `position`, `first` and `one` are added.
        layers, heads, context: sizes.
        seed: seed of the heads that are not planted.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        spaces: Mapping[str, int],
        *,
        layers: int,
        heads: int = 4,
        context: int = 40,
        seed: int = 0,
    ) -> None:
        self.tokenizer, self.vocab = tokenizer, len(tokenizer)
        widths = {**spaces, "position": context, "first": 1, "one": 1, "noise": 8}
        self.at: dict[str, slice] = {}
        start = 0
        for name, width in widths.items():
            self.at[name] = slice(start, start + width)
            start += width
        self.width = start
        self.d_head = max(-(-2 * start // heads), max(widths.values()) + context + 8)
        self.layers, self.heads, self.context = layers, heads, context
        self.generator = torch.Generator().manual_seed(seed)
        self.embedding = torch.zeros(self.vocab, start)
        self.embedding[0, self.at["first"]] = 1
        noise = self._drawn(self.vocab, 8)
        self.embedding[:, self.at["noise"]] = noise
        self.unembedding = torch.zeros(self.vocab, start)
        self.planted: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        self.neurons: dict[int, list[tuple[Tensor, float, Tensor]]] = {}

    def _drawn(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def eye(self, space: str) -> Tensor:
        """Return the rows that read a subspace: `[coordinate, stream]`."""
        here = self.at[space]
        out = torch.zeros(here.stop - here.start, self.width)
        out[:, here] = torch.eye(here.stop - here.start)
        return out

    def total(self, space: str) -> Tensor:
        """Return one row that reads the sum of a subspace."""
        return self.eye(space).sum(0, keepdim=True)

    def head(
        self,
        layer: int,
        head: int,
        scores: Sequence[tuple[float, Tensor, Tensor]],
        moved: Sequence[tuple[Tensor, Tensor]],
    ) -> None:
        """Plant a head: a sum of products of what query and key hold, and what is moved where.

        Args:
            layer: its layer.
            head: its index.
            scores: (factor in nats, rows that read the query, rows that read the key).
            moved: (rows that read the key's stream, rows of the subspace written).
        """
        query = torch.cat([f * q for f, q, _ in scores])
        key = torch.cat([k for *_, k in scores])
        value, out = (torch.cat(x) for x in zip(*moved, strict=True))
        assert max(len(query), len(value)) <= self.d_head
        self.planted[layer, head] = (query, key, value, out)

    def rest(self) -> tuple[float, Tensor, Tensor]:
        """Return the score of the first token."""
        return (REST, self.eye("one"), self.eye("first"))

    def earlier(self, distance: int) -> tuple[float, Tensor, Tensor]:
        """Return the score of the token at a fixed distance before the query."""
        here = self.eye("position")
        return (MATCH, here[distance:], here[: self.context - distance])

    def neuron(self, layer: int, reads: Tensor, bias: float, writes: Tensor) -> None:
        """Plant relu(reads . x + bias) * writes."""
        self.neurons.setdefault(layer, []).append((reads.reshape(-1), bias, writes.reshape(-1)))

    def build(self, name: str) -> interp.Model:
        """Return the model; heads that are not planted attend at random and write noise."""
        size = self.heads * self.d_head
        config = GPT2Config(
            vocab_size=self.vocab,
            n_positions=self.context,
            n_embd=size,
            n_layer=self.layers,
            n_head=self.heads,
            n_inner=max([1, *map(len, self.neurons.values())]),
            activation_function="relu",
            layer_norm_epsilon=EPSILON,
            tie_word_embeddings=False,
            bos_token_id=0,
            eos_token_id=None,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
        module: Any = GPT2LMHeadModel(config).eval()
        with torch.no_grad():
            for weight in module.parameters():
                weight.zero_()
            positions = torch.zeros(self.context, self.width)
            positions[:, self.at["position"]] = torch.eye(self.context)
            positions[:, self.at["one"]] = 1
            module.transformer.wte.weight.copy_(self._both(self.embedding, size))
            module.transformer.wpe.weight.copy_(self._both(positions, size))
            module.lm_head.weight[:, : self.width] = self.unembedding
            norms = [module.transformer.ln_f]
            for layer, block in enumerate(module.transformer.h):
                norms += [block.ln_1, block.ln_2]
                for head in range(self.heads):
                    self._fill(block.attn, layer, head, size)
                for at, (reads, bias, writes) in enumerate(self.neurons.get(layer, [])):
                    block.mlp.c_fc.weight[: self.width, at] = reads
                    block.mlp.c_fc.bias[at] = bias
                    block.mlp.c_proj.weight[at] = self._both(writes[None], size)[0]
            for norm in norms:
                norm.weight.fill_(GAIN)
        return interp.load(module, tokenizer=self.tokenizer, name=name)

    def _both(self, rows: Tensor, size: int) -> Tensor:
        out = torch.zeros(len(rows), size)
        out[:, : self.width], out[:, self.width : 2 * self.width] = rows, -rows
        return out

    def _fill(self, attention: Any, layer: int, head: int, size: int) -> None:
        if (layer, head) in self.planted:
            query, key, value, out = self.planted[layer, head]
        else:
            rows = (self._drawn(8, 8) for _ in range(4))
            query, key, value, out = (x @ self.eye("noise") for x in rows)
            out = 0.03 * out + NOISE * self._drawn(8, self.width)
        mine = slice(head * self.d_head, (head + 1) * self.d_head)
        for number, rows in enumerate((query * self.d_head**0.5, key, value)):
            columns = attention.c_attn.weight[: self.width, number * size :][:, mine]
            columns[:, : len(rows)] = rows.T
        attention.c_proj.weight[mine][: len(out)] = self._both(out, size)
