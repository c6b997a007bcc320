"""Claims on the shape of a model: its heads and their width, layers, parts and positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import theorems
import torch
from torch import Tensor, nn
from transformers import DebertaV2Config, DebertaV2ForMaskedLM

import interp
from interp.core.random_state import drawn_with
from interp.heads.geometry.projection_ranks import log_condition
from interp.heads.geometry.selection import selectable
from papers.attribution import sentences
from papers.beside import KINDS, SOFTMAX, loss, losses
from papers.finding import Numbers, claim
from papers.fitting import fit, rules, without_positions
from papers.hosts import MINILM
from training import alike, forms

DEEP: dict[str, Any] = {"num_hidden_layers": 3}


def changed(seed: int, change: Callable[[Any], None], **sizes: Any) -> Any:
    """Train softmax heads alike, with a part of the model changed before."""
    model = forms.build(SOFTMAX, seed=seed, gain=1.0, **alike.SIZES | sizes)
    change(model)
    return alike.train(model, seed)


def worse_than_whole(change: Callable[[Any], None], kinds: Sequence[str] = KINDS) -> list[float]:
    """Return the loss of a changed model of three layers minus that of the whole, for each seed."""
    made = [loss(changed(seed, change, **DEEP), kinds) for seed in alike.SEEDS]
    return (made - losses(SOFTMAX, kinds, **DEEP)).tolist()


def captured(model: Any, name: str) -> list[Tensor]:
    """Return an activation of every layer on held-out text."""
    given = alike.asked_rows(SOFTMAX, "text").given.tolist()
    held = interp.load(model, name="trained").capture(given, [name])
    return [held[name, layer].double() for layer in range(len(model.blocks))]


def condition_of(model: Any) -> float:
    """Return log10 of the condition number of what a layer's heads write, mean of the layers."""
    found = [log_condition(x).mean() for x in captured(model, "attn_out")]
    return float(torch.stack(found).mean())


@claim("Head count and conditioning")
def more_heads() -> Numbers:
    """Sixteen heads in two layers against four in three, and what their layers write."""
    many, few = (
        np.array([condition_of(alike.trained(SOFTMAX, s, **sizes)) for s in alike.SEEDS])
        for sizes in ({"num_attention_heads": 16}, {})
    )
    return many - few, losses(SOFTMAX, num_attention_heads=16) - losses(SOFTMAX, **DEEP)


@claim("Low-Rank Bottleneck")
def low_rank_bottleneck() -> Numbers:
    """Patterns out of reach of narrow heads, and the loss of heads as wide as the prompt."""
    at = {d: [theorems.bottleneck(32, d, seed) for seed in range(5)] for d in (8, 32)}
    wide = losses(SOFTMAX, num_attention_heads=8, head_dim=alike.LENGTH)
    errors = {d: [x["error"] for x in found] for d, found in at.items()}
    return errors[8], max(errors[32]), wide - losses(SOFTMAX, num_attention_heads=8)


def reuse(model: Any) -> None:
    """Let the last layer use the attention weights of the layer before."""
    giver, taker = rules(model)[-2:]
    own, kept = giver.rows, {}

    def rows(given: Any, chosen: Any) -> Any:
        kept["weights"] = own(given, chosen)
        return kept["weights"]

    giver.rows, taker.rows = rows, lambda given, chosen: kept["weights"]


@claim("Reuse transformer")
def reuse_transformer() -> Numbers:
    """Similarity of patterns by distance of layers, and a layer that uses those of another."""
    model = MINILM.model
    nearer = []
    for text in sentences(12):
        cache = model.capture(text, ["pattern"])
        layers = [cache["pattern", i][0].double()[:, 1:-1, 1:-1] for i in range(model.n_layers)]
        layers = [x / x.sum(-1, keepdim=True) for x in layers]

        def alike_at(apart: int, layers: list[Tensor] = layers) -> float:
            found = [
                (1 - (b[:, None] - a[None]).abs().sum(-1).mean(-1) / 2).amax(1).mean()
                for a, b in zip(layers, layers[apart:], strict=False)
            ]
            return float(torch.stack(found).mean())

        nearer.append(alike_at(1) - alike_at(4))
    return nearer, worse_than_whole(reuse)


class Silent(nn.Module):
    """An attention that adds nothing."""

    def __init__(self, attention: Any):
        super().__init__()
        self.rule = attention.rule

    def forward(self, x: Tensor, context: Any = None) -> Tensor:
        return torch.zeros_like(x)


def without_attention(seed: int, layer: int) -> Any:
    """Remove the attention of one layer of a trained model, and train the rest on."""
    model: Any = alike.trained(SOFTMAX, seed, **DEEP)
    model.blocks[layer].attention = Silent(model.blocks[layer].attention)
    return alike.train(model, seed + 100)


@claim("MLP Can Be A Good Transformer Learner")
def attention_into_mlp() -> Numbers:
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
    return least, np.subtract(least, most)


def entropy_share(pattern: Tensor) -> float:
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


@claim("ReLU's Revival")
def relu_without_norms() -> Numbers:
    """Train models without norms with GELU and with ReLU."""
    entropy, better = [], []
    for seed in alike.SEEDS:
        gelu, relu = (changed(seed, without_norms(a), **DEEP) for a in (nn.GELU, nn.ReLU))
        first = [entropy_share(captured(m, "pattern")[0]) for m in (gelu, relu)]
        entropy.append(first[0] - first[1])
        better.append(loss(relu) - loss(gelu))
    return entropy, better


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


@claim("On the Expressivity Role of LayerNorm")
def expressivity_of_norms() -> Numbers:
    """Train narrow models with and without a norm before attention; keys no query can select."""
    sizes = {"hidden_size": 8, "num_attention_heads": 1}
    with_norm, without, better = [], [], []
    for seed in alike.SEEDS:
        normed, bare = (changed(seed, change, **sizes) for change in (layer_norms, no_norms))
        with_norm.append(unselectable(normed))
        without.append(unselectable(bare))
        better.append(loss(normed, ["text"]) - loss(bare, ["text"]))
    return with_norm, without, better


@claim("Language Modeling with Deep Transformers")
def deep_without_positions() -> Numbers:
    """Train without position embeddings; the loss on text."""
    return worse_than_whole(without_positions, ["text"])


def _rows(rng: np.random.Generator, number: int, held_out: bool = True) -> alike.Rows:
    return alike.rows("text", number, rng, causal=False, held_out=held_out)


def _trained(relative: bool, seed: int) -> tuple[Any, float]:
    """Train a DeBERTa of two layers on hidden words of text; return it and its held-out loss."""
    config = DebertaV2Config(
        vocab_size=alike.VOCAB,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=64,
        relative_attention=relative,
        position_biased_input=not relative,
        max_relative_positions=alike.LENGTH,
        type_vocab_size=0,
        pos_att_type=["p2c", "c2p"] if relative else [],
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    with drawn_with(seed):
        model: Any = DebertaV2ForMaskedLM(config)

    def loss(rng: np.random.Generator) -> Tensor:
        return _loss(model, _rows(rng, 24, False))

    fit(model, loss, steps=500, seed=seed, rate=2e-3, betas=(0.9, 0.999))
    return model, _held_out(model)


def _loss(model: Any, asked: alike.Rows) -> Tensor:
    return alike.mean_loss(model(input_ids=asked.given).logits, asked)


@torch.no_grad()
def _held_out(model: Any) -> float:
    return float(_loss(model, _rows(np.random.default_rng(99), 300)))


def _of_places(model: Any) -> float:
    """Return the share of terms with positions in the variance of scores, mean over heads."""
    asked = _rows(np.random.default_rng(98), 16).given.tolist()
    found = interp.score(interp.load(model), "content_term", asked, null="none")
    return 1 - float(found.to_pandas()["score"].mean())


@claim("DeBERTa")
def disentangled() -> Numbers:
    """Train on hidden words of text, with relative terms in scores or absolute places in inputs."""
    better, shares, needed = [], [], []
    for seed in alike.SEEDS:
        (model, loss), (_, plain) = (_trained(x, seed) for x in (True, False))
        better.append(loss - plain)
        shares.append(_of_places(model))
        model.deberta.encoder.rel_embeddings.weight.data.zero_()
        needed.append(_held_out(model) - loss)
    return better, shares, needed
