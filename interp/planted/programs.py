"""Programs compiled by Tracr (Lindner et al. 2023), alone or several side by side in one model.

    joined("hist")                   # also interp.load("compiled:hist")
    joined("shuffle_dyck2+hist")     # the heads of each program are bystanders of the other

Weights are stored, so that neither Tracr nor jax is needed; `training/compile_programs.py` makes
them. In a joined model every token holds a word of each program, every program has coordinates of
the stream, heads and outputs of its own, and layers that a program does not use have weights of 0.
The list `PROGRAMS` is read without importing torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.documents import parse_json
from interp.core.errors import OptionError, UnknownName

if TYPE_CHECKING:
    from torch import Tensor

    from interp.planted.compiled import CompiledTransformer, Program

FILE = Path(__file__).with_name("programs.npz")
PAD = "compiler_pad"
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "head_dim",
    "d_mlp",
    "n_out",
    "max_position_embeddings",
    "causal",
)


@dataclass(frozen=True)
class Library:
    """A program of Tracr's library.

    Args:
        summary: what it computes at every position.
        words: the words that it is compiled for.
        longest: the largest number of words.
        causal: True if it is compiled with causal attention.
        lengths: True if its answer depends on the number of words.
    """

    summary: str
    words: tuple[Any, ...]
    longest: int = 5
    causal: bool = False
    lengths: bool = False


PROGRAMS: dict[str, Library] = {
    "length": Library("the number of words", ("a", "b", "c", "d"), lengths=True),
    "hist": Library("how often the word occurs", ("a", "b", "c")),
    "count": Library("how often `a` occurs", ("a", "b", "c")),
    "shift_by": Library("the word before", ("a", "b", "c", "d")),
    "reverse": Library("the words in reverse order", (1, 2, 3, 4), lengths=True),
    "sort_unique": Library("the words in order of size, if they differ", (1, 2, 3, 4)),
    "sort": Library("the words in order of size", (1, 2, 3, 4)),
    "sort_freq": Library("the words in order of their frequency", (1, 2, 3)),
    "nary_sequencemap": Library("a function of word and position, by MLPs alone", (1, 2, 3)),
    "frac_prevs": Library("the share of `x` among the words so far", ("x", "a", "b"), 6),
    "frac_prevs_causal": Library("`frac_prevs` by causal attention", ("x", "a", "b"), 6, True),
    "count_less_freq": Library("how many words occur at most twice", ("a", "b", "c")),
    "detect_pattern": Library("where `a b c` ends", ("a", "b", "c"), 6),
    "pair_balance": Library(
        "the share of `(` minus that of `)` among the words so far", ("(", ")", "a"), 6, True
    ),
    "shuffle_dyck": Library("whether brackets are balanced", ("(", ")"), 6, lengths=True),
    "shuffle_dyck2": Library(
        "whether brackets of two kinds are each balanced", ("(", ")", "{", "}"), 6, lengths=True
    ),
}
# Joins that are listed by name; any other programs can be joined as well.
JOINS = (
    "shuffle_dyck2+shuffle_dyck",
    "shuffle_dyck2+sort+hist",
    "shuffle_dyck+detect_pattern+count",
    "pair_balance+frac_prevs_causal",
    "reverse+sort+sort_freq",
    "detect_pattern+sort_unique",
    "count_less_freq+hist+length",
    "shift_by+nary_sequencemap+frac_prevs",
)


@dataclass(frozen=True, eq=False)
class Part:
    """A program in a joined model: its output columns, and its edges under the model's names.

    `outputs` are the values that the columns stand for; empty where the program computes a number.
    """

    name: str
    columns: tuple[int, ...]
    outputs: tuple[Any, ...]
    edges: frozenset[tuple[str, str]]

    @property
    def nodes(self) -> frozenset[str]:
        """Writers of the circuit, including `embed`."""
        return frozenset(w for w, _ in self.edges)


@dataclass(frozen=True, eq=False)
class JoinedPrograms:
    """Programs in one model; token `i` is the words `tokens[i]`, one for each program."""

    name: str
    module: CompiledTransformer
    parts: Mapping[str, Part]
    tokens: tuple[tuple[Any, ...], ...]
    bos: int
    pad: int
    longest: int

    def ids(self, lists: Sequence[Sequence[Any]]) -> list[int]:
        """Return the token ids of a list of words for each program, all of one length."""
        if len(lists) != len(self.parts):
            raise OptionError(
                f"{len(lists)} lists of words for the {len(self.parts)} programs of {self.name}; "
                "give one for each program"
            )
        at = {words: i for i, words in enumerate(self.tokens)}
        unknown = [words for words in zip(*lists, strict=True) if words not in at]
        if unknown:
            raise OptionError(
                f"the programs {self.name} do not know the words {unknown[0]}; they know "
                + " and ".join(str(PROGRAMS[name].words) for name in self.parts)
            )
        return [self.bos, *(at[words] for words in zip(*lists, strict=True))]


def names_in(name: str) -> list[str]:
    """Return the programs that a name joins, in order."""
    programs = name.split("+")
    for each in programs:
        if each not in PROGRAMS:
            raise UnknownName("compiled program", each, PROGRAMS)
    if len(set(programs)) < len(programs):
        raise OptionError(f"{name} joins a program with itself; name each program once")
    if len({PROGRAMS[each].causal for each in programs}) > 1:
        causal = ", ".join(each for each in PROGRAMS if PROGRAMS[each].causal)
        raise OptionError(
            f"{name} joins programs with causal attention and others; join either some of {causal}"
            " or some of the other programs"
        )
    return programs


@cache
def program(name: str) -> Program:
    """Return a program from the stored weights."""
    import numpy as np
    import torch

    from interp.core.random_state import drawn_with
    from interp.planted.compiled import (
        CompiledConfig,
        CompiledTransformer,
        Program,
        edges_of,
        word_lists,
    )

    if name not in PROGRAMS:
        raise UnknownName("compiled program", name, PROGRAMS)
    with np.load(FILE) as file:
        about = parse_json(str(file["about"]))[name]
        stored = torch.from_numpy(file[name])
    config = CompiledConfig(**about["sizes"], name_or_path=f"tracr:{name}")
    with drawn_with(None):
        module = CompiledTransformer(config).float().eval()
    weights = list(module.parameters())
    with torch.no_grad():
        for weight, x in zip(weights, stored.split([w.numel() for w in weights]), strict=True):
            weight.copy_(x.view_as(weight))
    tokens = dict(about["tokens"])
    entry = PROGRAMS[name]
    words, bos = [tokens[word] for word in entry.words], tokens[about["bos"]]
    pad = tokens[PAD] if entry.lengths else -1
    edges = edges_of(module, word_lists(words, entry.longest, bos, pad), pad)
    return Program(name, module, tokens, about["bos"], edges, tuple(about["outputs"]))


@cache
def joined(name: str) -> JoinedPrograms:
    """Build the model of one program (`hist`) or of several (`shuffle_dyck2+hist`)."""
    import torch

    from interp.core.random_state import drawn_with
    from interp.planted.compiled import CompiledConfig, CompiledTransformer

    programs = [program(each) for each in names_in(name)]
    configs: list[Any] = [each.module.config for each in programs]
    layers = max(c.num_hidden_layers for c in configs)
    tokens = tuple(product(*(PROGRAMS[each.name].words for each in programs)))
    config = CompiledConfig(
        vocab_size=len(tokens) + 2,
        hidden_size=sum(c.hidden_size for c in configs),
        num_hidden_layers=layers,
        num_attention_heads=sum(c.num_attention_heads for c in configs),
        head_dim=max(c.head_dim for c in configs),
        d_mlp=sum(c.d_mlp for c in configs),
        n_out=sum(c.n_out for c in configs),
        max_position_embeddings=min(c.max_position_embeddings for c in configs),
        causal=configs[0].causal,
        name_or_path=f"compiled:{name}",
    )
    with drawn_with(None), torch.no_grad():
        module = CompiledTransformer(config).float().eval()
        for weight in module.parameters():
            weight.zero_()
        parts: dict[str, Part] = {}
        start = _Start()
        for i, each in enumerate(programs):
            rows = [*(each.tokens[words[i]] for words in tokens), each.tokens[each.bos]]
            rows.append(each.tokens[PAD])
            _write(module, each, start, rows)
            parts[each.name] = Part(
                each.name,
                tuple(range(start.out, start.out + configs[i].n_out)),
                each.outputs,
                frozenset((_moved(a, start.head), _moved(b, start.head)) for a, b in each.edges),
            )
            start = start.after(configs[i])
    longest = int(config.max_position_embeddings) - 1
    return JoinedPrograms(name, module, parts, tokens, len(tokens), len(tokens) + 1, longest)


@dataclass(frozen=True)
class _Start:
    """First coordinate, head, neuron and output of a program in a joined model."""

    stream: int = 0
    head: int = 0
    neuron: int = 0
    out: int = 0

    def after(self, config: Any) -> _Start:
        """Return the starts of the next program."""
        return _Start(
            self.stream + config.hidden_size,
            self.head + config.num_attention_heads,
            self.neuron + config.d_mlp,
            self.out + config.n_out,
        )


def _write(module: CompiledTransformer, part: Program, start: _Start, rows: list[int]) -> None:
    """Copy a program's weights to its place."""
    big: Any = module.config
    small: Any = part.module.config
    stream = slice(start.stream, start.stream + small.hidden_size)
    neurons = slice(start.neuron, start.neuron + small.d_mlp)
    source: Any = part.module
    module.token_embed.weight[:, stream] = source.token_embed.weight[rows]
    longest = big.max_position_embeddings
    module.pos_embed.weight[:, stream] = source.pos_embed.weight[:longest]
    module.output.weight[start.out : start.out + small.n_out, stream] = source.output.weight
    n, d = small.num_attention_heads, small.head_dim
    heads = slice(start.head, start.head + n)
    scale = {"query": sqrt(big.head_dim / d)}  # scores are divided by the root of the head size
    for to, of in zip(module.layers, source.layers, strict=False):
        mine: Any = to
        theirs: Any = of
        for name in ("query", "key", "value"):
            put, given = getattr(mine.attn, name), getattr(theirs.attn, name)
            for x, y in ((put.weight[:, stream], given.weight), (put.bias, given.bias)):
                _heads(x, big)[heads, :d] = scale.get(name, 1.0) * _heads(y, small)
        _heads(mine.attn.linear.weight[stream].T, big)[heads, :d] = _heads(
            theirs.attn.linear.weight.T, small
        )
        mine.attn.linear.bias[stream] = theirs.attn.linear.bias
        mine.mlp.linear_1.weight[neurons, stream] = theirs.mlp.linear_1.weight
        mine.mlp.linear_1.bias[neurons] = theirs.mlp.linear_1.bias
        mine.mlp.linear_2.weight[stream, neurons] = theirs.mlp.linear_2.weight
        mine.mlp.linear_2.bias[stream] = theirs.mlp.linear_2.bias


def _heads(x: Tensor, config: Any) -> Tensor:
    return x.unflatten(0, (config.num_attention_heads, config.head_dim))


def _moved(node: str, by: int) -> str:
    """Return the name of a node or reader whose head has another number."""
    if node[0] != "L":
        return node
    layer, _, rest = node.partition("H")
    head, dot, part = rest.partition(".")
    return f"{layer}H{int(head) + by}{dot}{part}"
