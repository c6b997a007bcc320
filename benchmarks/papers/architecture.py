"""Claims of papers on how many heads of which width, in how deep a model, with which parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import theorems
import torch
from torch import nn

import interp
from benchmarks.paper_findings import Finding
from interp.heads.geometry.projection_ranks import log_condition
from interp.heads.geometry.selection import selectable
from papers.beside import COMPARABLE, KINDS, SOFTMAX, loss, losses
from papers.finding import above, below, claim, exact
from papers.hosts import MINILM
from training import alike, forms

DEEP: dict[str, Any] = {"num_hidden_layers": 3}
LAYERS = "softmax heads of three layers trained alike for 600 steps (text, copies, recall), 3 seeds"
SEEDS = f"{len(alike.SEEDS)} seeds"


def changed(seed: int, change: Callable[[Any], None], **sizes: Any) -> Any:
    """Train softmax heads alike, with a part of the model changed before."""
    model = forms.build(SOFTMAX, seed=seed, gain=1.0, **alike.SIZES | sizes)
    change(model)
    return alike.train(model, seed)


def worse_than_whole(change: Callable[[Any], None], kinds: Sequence[str] = KINDS) -> list[float]:
    """Return the loss of a changed model of three layers minus that of the whole, for each seed."""
    made = [loss(changed(seed, change, **DEEP), kinds) for seed in alike.SEEDS]
    return (made - losses(SOFTMAX, kinds, **DEEP)).tolist()


def captured(model: Any, name: str) -> list[torch.Tensor]:
    """Return an activation of every layer on held-out text."""
    given = alike.asked_rows(SOFTMAX, "text").given.tolist()
    held = interp.load(model, name="trained").capture(given, [name])
    return [held[name, layer].double() for layer in range(len(model.blocks))]


def condition_of(model: Any) -> float:
    """Return log10 of the condition number of what a layer's heads write, mean of the layers."""
    found = [log_condition(x).mean() for x in captured(model, "attn_out")]
    return float(torch.stack(found).mean())


@claim("Head count and conditioning", LAYERS)
def more_heads() -> list[Finding]:
    """Sixteen heads in two layers against four in three, and what their layers write."""
    condition = [
        condition_of(alike.trained(SOFTMAX, s, num_attention_heads=16))
        - condition_of(alike.trained(SOFTMAX, s))
        for s in alike.SEEDS
    ]
    worse = losses(SOFTMAX, num_attention_heads=16) - losses(SOFTMAX, **DEEP)
    return [
        below(
            "log10 of the condition number of what a layer's heads write, 16 heads minus 4, two"
            " layers",
            condition,
            SEEDS,
            unit="log10",
        ),
        below(
            "loss of two layers of 16 heads minus that of three layers of 4, mean of text, copies"
            " and recall",
            worse,
            SEEDS,
            COMPARABLE,
            "nats per token",
        ),
    ]


@claim(
    "Low-Rank Bottleneck",
    "patterns of 32 tokens; two layers of eight heads trained alike for 600 steps, 3 seeds",
)
def low_rank_bottleneck() -> list[Finding]:
    """Patterns out of reach of narrow heads, and the loss of heads as wide as the prompt."""
    at = {d: [theorems.bottleneck(32, d, seed) for seed in range(5)] for d in (8, 32)}
    wide = losses(SOFTMAX, num_attention_heads=8, head_dim=alike.LENGTH)
    return [
        above(
            "error of the nearest pattern of a head of width 8",
            [x["error"] for x in at[8]],
            "5 random patterns",
            0.05,
            "attention",
        ),
        exact(
            "largest error of a pattern of a head of width 32",
            max(x["error"] for x in at[32]),
            "attention",
            "below",
            1e-6,
            "5 random patterns",
        ),
        below(
            "loss of eight heads as wide as the prompt (32) minus that of eight of width 8, model"
            " width 64",
            wide - losses(SOFTMAX, num_attention_heads=8),
            SEEDS,
            unit="nats per token",
        ),
    ]


def reuse(model: Any) -> None:
    """Let the last layer use the attention weights of the layer before."""
    giver, taker = (block.attention.rule for block in model.blocks[-2:])
    own, kept = giver.rows, {}

    def rows(given: Any, chosen: Any) -> Any:
        kept["weights"] = own(given, chosen)
        return kept["weights"]

    giver.rows, taker.rows = rows, lambda given, chosen: kept["weights"]


@claim("Reuse transformer", f"{LAYERS}; all-MiniLM-L6-v2 on sentences of data/treebank.conllu")
def reuse_transformer() -> list[Finding]:
    """Similarity of patterns by distance of layers, and a layer that uses those of another."""
    from papers.attribution import sentences

    model = MINILM.model
    nearer = []
    for text in sentences(12):
        cache = model.capture(text, ["pattern"])
        layers = [cache["pattern", i][0].double()[:, 1:-1, 1:-1] for i in range(model.n_layers)]
        layers = [x / x.sum(-1, keepdim=True) for x in layers]

        def alike_at(apart: int, layers: list[torch.Tensor] = layers) -> float:
            found = [
                (1 - (b[:, None] - a[None]).abs().sum(-1).mean(-1) / 2).amax(1).mean()
                for a, b in zip(layers, layers[apart:], strict=False)
            ]
            return float(torch.stack(found).mean())

        nearer.append(alike_at(1) - alike_at(4))
    return [
        above(
            "similarity to the most similar head of the layer before minus to that of four layers"
            " before, all-MiniLM-L6-v2",
            nearer,
            "12 sentences",
            unit="shared attention",
        ),
        below(
            "loss with the last layer reusing the weights of the layer before minus without",
            worse_than_whole(reuse),
            SEEDS,
            COMPARABLE,
            "nats per token",
        ),
    ]


class Silent(nn.Module):
    """An attention that adds nothing."""

    def __init__(self, attention: Any):
        super().__init__()
        self.rule = attention.rule

    def forward(self, x: torch.Tensor, context: Any = None) -> torch.Tensor:
        """Return zeros."""
        return torch.zeros_like(x)


def without_attention(seed: int, layer: int) -> Any:
    """Remove the attention of one layer of a trained model, and train the rest on."""
    model: Any = alike.trained(SOFTMAX, seed, **DEEP)
    model.blocks[layer].attention = Silent(model.blocks[layer].attention)
    return alike.train(model, seed + 100)


@claim("MLP Can Be A Good Transformer Learner", LAYERS)
def attention_into_mlp() -> list[Finding]:
    """Train on whole, without the attention of least entropy in a layer, and of most."""
    least, most = [], []
    for seed in alike.SEEDS:
        plain = alike.trained(SOFTMAX, seed, **DEEP)
        ids = alike.rows("text", 16, np.random.default_rng(seed), causal=True, held_out=False).given
        found = interp.heads.outliers.layer_entropies(interp.load(plain, name="x"), ids.tolist())
        frame = found.to_pandas().query("part == 'attention'")
        order = frame.layer.to_numpy()[frame.score.to_numpy().argsort()].tolist()
        own = loss(alike.train(plain, seed + 100))  # for as long as the others
        least.append(loss(without_attention(seed, order[0])) - own)
        most.append(loss(without_attention(seed, order[-1])) - own)
    return [
        below(
            "loss without the attention of least entropy, its MLP trained on, minus the whole"
            " model's, trained on as long",
            least,
            SEEDS,
            COMPARABLE,
            "nats per token",
        ),
        below(
            "loss without the attention of least entropy minus without that of largest entropy",
            np.subtract(least, most),
            SEEDS,
            unit="nats per token",
        ),
    ]


def entropy_share(pattern: torch.Tensor) -> float:
    """Return the entropy of rows over that of even rows, mean of queries with two keys or more."""
    entropy = torch.special.entr(pattern[..., 1:, :]).sum(-1)
    return float((entropy / torch.arange(2, pattern.shape[-1] + 1).log()).mean())


def without_norms(activation: type[nn.Module]) -> Callable[[Any], None]:
    """Return a change that takes the norms of all blocks away and sets their activation."""

    def change(model: Any) -> None:
        for block in model.blocks:
            block.norm, block.mlp_norm = nn.Identity(), nn.Identity()
            block.mlp[1] = activation()

    return change


@claim("ReLU's Revival", f"{LAYERS}, no norms in the blocks")
def relu_without_norms() -> list[Finding]:
    """Train models without norms with GELU and with ReLU."""
    entropy, better = [], []
    for seed in alike.SEEDS:
        gelu, relu = (changed(seed, without_norms(a), **DEEP) for a in (nn.GELU, nn.ReLU))
        first = [entropy_share(captured(m, "pattern")[0]) for m in (gelu, relu)]
        entropy.append(first[0] - first[1])
        better.append(loss(relu) - loss(gelu))
    return [
        above(
            "share of the largest entropy in heads of the first layer, GELU minus ReLU",
            entropy,
            SEEDS,
            unit="share",
        ),
        below("loss with ReLU minus with GELU", better, SEEDS, unit="nats per token"),
    ]


def layer_norms(model: Any) -> None:
    """Normalise each block's input by mean and length."""
    for block in model.blocks:
        block.norm = nn.LayerNorm(model.config.hidden_size)


def no_norms(model: Any) -> None:
    """Let each block's attention read the stream as it is."""
    for block in model.blocks:
        block.norm = nn.Identity()


def unselectable(model: Any) -> float:
    """Return the share of what attention reads at the positions of a text that no query selects."""
    shares = []
    for block, stream in zip(model.blocks, captured(model, "resid_pre"), strict=True):
        with torch.no_grad():
            read = block.norm(stream.float()).double()
        shares += [1 - float(selectable(x.numpy()).mean()) for x in read[:16]]
    return float(np.mean(shares))


@claim(
    "On the Expressivity Role of LayerNorm",
    "models of width 8, two layers of one head, trained alike for 600 steps, 3 seeds",
)
def expressivity_of_norms() -> list[Finding]:
    """Train narrow models with and without a norm before attention; keys no query can select."""
    sizes = {"hidden_size": 8, "num_attention_heads": 1}
    shares, better = [], []
    for seed in alike.SEEDS:
        normed, bare = (changed(seed, change, **sizes) for change in (layer_norms, no_norms))
        shares.append([unselectable(m) for m in (normed, bare)])
        better.append(loss(normed, ["text"]) - loss(bare, ["text"]))
    with_norm, without = np.transpose(shares).tolist()
    return [
        below(
            "share of keys that no query can select, with LayerNorm",
            with_norm,
            SEEDS,
            0.01,
            "share of keys",
        ),
        above(
            "share of keys that no query can select, without", without, SEEDS, 0.05, "share of keys"
        ),
        below("loss on text with LayerNorm minus without", better, SEEDS, unit="nats per token"),
    ]


def no_positions(model: Any) -> None:
    """Take the position embeddings away."""
    nn.init.zeros_(model.positions.weight)
    model.positions.weight.requires_grad_(False)


@claim("Language Modeling with Deep Transformers", LAYERS)
def without_positions() -> Finding:
    """Train without position embeddings; the loss on text."""
    return below(
        "loss on text without position embeddings minus with them",
        worse_than_whole(no_positions, ["text"]),
        SEEDS,
        unit="nats per token",
    )
