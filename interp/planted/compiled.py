"""Transformers from weights of a program compiler, such as Tracr (Lindner et al. 2023).

    from tracr.compiler import compiling, lib
    hist = lib.make_hist()
    made = compiling.compile_rasp_to_model(hist, {"a", "b"}, 5, compiler_bos="BOS")
    program = compiled(made, output=hist.label, name="hist")
    model = interp.load(program.module, name="hist")

This module imports neither Tracr nor jax: compiled weights are read by parameter name. Such a model
has no norms; its circuit is what carries information from its words to its output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from interp.core.errors import OptionError
from interp.core.random_state import drawn_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

_NOTHING = 1e-3  # compiled weights are integers and their ratios


class CompiledConfig(PreTrainedConfig):
    """Sizes of a compiled transformer."""

    model_type = "interp_compiled"

    def __init__(
        self,
        vocab_size: int = 4,
        hidden_size: int = 8,
        num_hidden_layers: int = 1,
        num_attention_heads: int = 1,
        head_dim: int = 8,
        d_mlp: int = 8,
        n_out: int = 4,
        max_position_embeddings: int = 8,
        causal: bool = False,
        **other: Any,
    ) -> None:
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.head_dim, self.d_mlp, self.n_out = head_dim, d_mlp, n_out
        self.max_position_embeddings, self.causal = max_position_embeddings, causal
        other.setdefault("tie_word_embeddings", False)
        super().__init__(**other)


class _Attention(nn.Module):
    def __init__(self, config: CompiledConfig) -> None:
        super().__init__()
        self.shape = config.num_attention_heads, config.head_dim
        self.causal = config.causal
        width = config.num_attention_heads * config.head_dim
        self.query = nn.Linear(config.hidden_size, width)
        self.key = nn.Linear(config.hidden_size, width)
        self.value = nn.Linear(config.hidden_size, width)
        self.linear = nn.Linear(width, config.hidden_size)

    def heads(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos width"]:
        """Compute the outputs of all heads before the output projection, side by side."""
        batch, pos, _ = x.shape
        parts = (self.query(x), self.key(x), self.value(x))
        q, k, v = (y.view(batch, pos, *self.shape).transpose(1, 2) for y in parts)
        scores = q @ k.transpose(-1, -2) / self.shape[1] ** 0.5
        if self.causal:
            future = torch.ones(pos, pos, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(future, torch.finfo(scores.dtype).min)
        z = scores.softmax(-1) @ v
        return z.transpose(1, 2).reshape(batch, pos, -1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.heads(x))


class _MLP(nn.Module):
    def __init__(self, config: CompiledConfig) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(config.hidden_size, config.d_mlp)
        self.linear_2 = nn.Linear(config.d_mlp, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(torch.relu(self.linear_1(x)))


class _Block(nn.Module):
    def __init__(self, config: CompiledConfig) -> None:
        super().__init__()
        self.attn, self.mlp = _Attention(config), _MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        return x + self.mlp(x)


class CompiledTransformer(PreTrainedModel):
    """Alternating attention and MLPs without norms; outputs are coordinates of the stream."""

    config_class = CompiledConfig
    base_model_prefix = "model"

    def __init__(self, config: CompiledConfig) -> None:
        super().__init__(config)
        self.token_embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.pos_embed = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.layers = nn.ModuleList([_Block(config) for _ in range(config.num_hidden_layers)])
        self.output = nn.Linear(config.hidden_size, config.n_out, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embedding."""
        return self.token_embed

    def _init_weights(self, module: nn.Module) -> None:
        """Keep the default initialisation of modules; compiled weights are copied in."""

    def forward(self, input_ids: Tensor, **_: Any) -> CausalLMOutput:
        """Compute the outputs at every position."""
        position = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.token_embed(input_ids) + self.pos_embed(position)
        for layer in self.layers:
            x = layer(x)
        return CausalLMOutput(logits=self.output(x))


@dataclass(frozen=True, eq=False)
class Program:
    """Compiled model with its vocabulary and the circuit given by its weights.

    `edges` are the (writer, reader) pairs of the residual graph that carry information and lie on a
    path from the words to the output. `outputs` are the values that the outputs stand for, one of
    which is 1 and the others 0; empty where the program computes a number.
    """

    name: str
    module: CompiledTransformer
    tokens: dict[Any, int]
    bos: Any
    edges: frozenset[tuple[str, str]]
    outputs: tuple[Any, ...] = ()

    @property
    def nodes(self) -> frozenset[str]:
        """Writers of the circuit, including `embed`."""
        return frozenset(w for w, _ in self.edges)

    def ids(self, words: Sequence[Any]) -> list[int]:
        """Return the token ids of a list of words, after the beginning of the sequence."""
        unknown = [w for w in words if w not in self.tokens]
        if unknown:
            known = ", ".join(map(str, self.tokens))
            raise OptionError(f"program {self.name} does not know {unknown[0]!r}; it knows {known}")
        return [self.tokens[self.bos], *(self.tokens[w] for w in words)]


def compiled(made: Any, *, output: str, name: str) -> Program:
    """Convert the result of `tracr.compiler.compiling.compile_rasp_to_model` to a torch model."""
    about = made.model_config
    if about.layer_norm:
        raise OptionError(f"program {name}: it was compiled with layer norm; compile it without")
    params = {k: {n: np.array(x) for n, x in v.items()} for k, v in made.params.items()}
    labels = list(made.residual_labels)
    wanted = _output_labels(made, output)
    missing = [x for x in wanted if x not in labels]
    if missing:
        raise OptionError(
            f"program {name} has no coordinate {missing[0]!r}; give output=program.label of the "
            "same program that was compiled"
        )
    outputs = [labels.index(x) for x in wanted]
    config = CompiledConfig(
        vocab_size=len(params["token_embed"]["embeddings"]),
        hidden_size=len(labels),
        num_hidden_layers=about.num_layers,
        num_attention_heads=about.num_heads,
        head_dim=about.key_size,
        d_mlp=about.mlp_hidden_size,
        n_out=len(outputs),
        max_position_embeddings=len(params["pos_embed"]["embeddings"]),
        causal=about.causal,
        name_or_path=f"tracr:{name}",
    )
    with drawn_with(None):
        module = CompiledTransformer(config).float()
    weights = {
        "token_embed.weight": params["token_embed"]["embeddings"],
        "pos_embed.weight": params["pos_embed"]["embeddings"],
        "output.weight": np.eye(len(labels))[outputs],
    }
    for i in range(about.num_layers):
        for theirs, ours in (
            *((f"attn/{part}", f"attn.{part}") for part in ("query", "key", "value", "linear")),
            ("mlp/linear_1", "mlp.linear_1"),
            ("mlp/linear_2", "mlp.linear_2"),
        ):
            tensors = params[f"transformer/layer_{i}/{theirs}"]
            weights[f"layers.{i}.{ours}.weight"] = tensors["w"].T
            weights[f"layers.{i}.{ours}.bias"] = tensors["b"]
    state = {k: torch.tensor(np.ascontiguousarray(x)).float() for k, x in weights.items()}
    module.load_state_dict(state, strict=True)
    tokens = dict(made.input_encoder.encoding_map)
    bos, pad = made.input_encoder.bos_token, made.input_encoder.pad_token
    words = [i for word, i in tokens.items() if word not in (bos, pad)]
    lists = word_lists(words, config.max_position_embeddings - 1, tokens[bos], tokens[pad])
    edges = edges_of(module, lists, tokens[pad])
    coded = getattr(made.output_encoder, "encoding_map", None) or {}
    values = tuple(sorted(coded, key=coded.__getitem__))
    return Program(name, module.eval(), tokens, bos, edges, values)


def _output_labels(made: Any, output: str) -> list[str]:
    """Return the stream coordinates of the program's output, in the encoder's order."""
    coded = getattr(made.output_encoder, "encoding_map", None)
    if coded is None:
        return [output]
    return [f"{output}:{value}" for value in sorted(coded, key=coded.__getitem__)]


def word_lists(tokens: Sequence[int], longest: int, bos: int, pad: int = -1) -> Tensor:
    """Draw 2048 lists of tokens after `bos`; a `pad` >= 0 fills all but the first to length."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.tensor(list(tokens))[torch.randint(len(tokens), (2048, longest), generator=draw)]
    if pad >= 0:
        length = longest - torch.randint(min(longest, 3), (len(ids), 1), generator=draw)
        length[0] = longest
        ids = torch.where(torch.arange(longest) < length, ids, pad)
    return torch.cat([torch.full((len(ids), 1), bos), ids], 1)


@torch.no_grad()
def edges_of(
    module: CompiledTransformer, ids: Int[Tensor, "list pos"], pad: int = -1
) -> frozenset[tuple[str, str]]:
    """Return the edges of a compiled model that carry information from its words to its output.

    What a component writes in these lists differs from list to list at some position, and a weight
    that reads it is not orthogonal to the differences.
    """
    # differences from the first list at the position, one per row: all, and where there are words
    written: dict[str, tuple[Tensor, Tensor]] = {}
    meets: list[tuple[str, str]] = []
    config: Any = module.config
    layers: Any = module.layers

    def write(writer: str, output: Float[Tensor, "list pos d_model"]) -> None:
        differences = (output - output[:1]).round(decimals=4)
        at_words = differences[ids != pad]
        written[writer] = differences.flatten(0, 1).unique(dim=0), at_words.unique(dim=0)

    def read(reader: str, weight: Float[Tensor, "out d_model"]) -> None:
        for writer, (everywhere, at_words) in written.items():
            differences = everywhere if reader[-2:] in (".k", ".v") else at_words
            if float((differences @ weight.T).abs().max()) > _NOTHING:
                meets.append((writer, reader))

    x = module.token_embed(ids) + module.pos_embed(torch.arange(ids.shape[1]))
    write("embed", x)
    for i, layer in enumerate(layers):
        attention = layer.attn
        for part in ("query", "key", "value"):
            weight = getattr(attention, part).weight
            for h, mine in enumerate(weight.unflatten(0, (-1, config.head_dim))):
                read(f"L{i}H{h}.{part[0]}", mine)
        z = attention.heads(x).unflatten(-1, (-1, config.head_dim))
        out = attention.linear.weight.unflatten(1, (-1, config.head_dim))
        for h in range(config.num_attention_heads):
            write(f"L{i}H{h}", z[:, :, h] @ out[:, h].T)
        x = x + attention(x)
        read(f"mlp{i}", layer.mlp.linear_1.weight)
        write(f"mlp{i}", layer.mlp(x))
        x = x + layer.mlp(x)
    read("logits", module.output.weight)
    return _leading(meets)


def _leading(edges: list[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Return those edges that lie on a path from the embeddings to the logits."""
    kept = edges
    while True:
        writes = {w for w, _ in kept}
        reads = {r.partition(".")[0] for _, r in kept}
        left = [
            (w, r)
            for w, r in kept
            if (w == "embed" or w in reads) and (r == "logits" or r.partition(".")[0] in writes)
        ]
        if len(left) == len(kept):
            return frozenset(kept)
        kept = left
