"""Assembly of a Llama model from a plan of head roles per layer.

Llama is a standard class that every tool reads and whose attention has everything that a planted
head needs (grouped queries, rotary positions, a separate head size). Its two nonlinear parts are
switched off by their parameters, not by code: the MLPs are zero, and the variance epsilon of
RMSNorm (2**24) exceeds the variance of the stream so far that the sum is the epsilon itself in
float32; with weights of 2**12 every norm is then the identity. So the model is exactly linear apart
from its softmaxes, and a head whose output is never read changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.random_state import drawn_with
from interp.planted import heads as blocks
from interp.planted.heads import Geometry
from interp.planted.residual import Residual, random_rotation

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

NORM_EPSILON = 2.0**24
NORM_WEIGHT = 2.0**12  # sqrt of the epsilon: the norm is the identity
LOGIT = 10.0  # logit of a token written once to the output
BOS = 0


@dataclass(frozen=True)
class Sizes:
    """Sizes that every builder accepts."""

    layers: int
    heads: int
    kv_heads: int
    vocab: int
    context: int
    seed: int


@dataclass(frozen=True)
class Stage:
    """Heads planted in one layer, and the subspace ("token" or "previous") that their keys hold."""

    roles: tuple[str, ...]
    key: str = "token"


@dataclass(frozen=True)
class Planted:
    """Model with a built-in mechanism, and the role of each head.

    `roles` maps each role to its (layer, head) pairs; random heads have the role "noise". `attends`
    maps names of attention detectors to the heads that by construction put their mass there on
    repeated random tokens after a beginning-of-sequence token, whether or not they use it.
    `subspaces` maps names of parts of the residual stream to orthonormal bases. `successor`, if the
    model has a table of bigrams, is the predicted token after each token. Prompts must start with
    `bos_token_id`: heads without a match attend to it.
    """

    name: str
    model: LlamaForCausalLM
    roles: dict[str, list[tuple[int, int]]]
    attends: dict[str, list[tuple[int, int]]]
    subspaces: dict[str, Float[Tensor, "coordinate d_model"]]
    seed: int
    bos_token_id: int = BOS
    successor: Int[Tensor, " d_vocab"] | None = None
    _by_head: dict[tuple[int, int], str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_head = {head: role for role, heads in self.roles.items() for head in heads}
        object.__setattr__(self, "_by_head", by_head)

    def role(self, layer: int, head: int) -> str:
        """Return the role of one head."""
        return self._by_head[layer, head]


def assemble(
    name: str,
    stages: list[Stage],
    attends: dict[str, list[str]],
    sizes: Sizes,
    *,
    bigrams: bool = False,
) -> Planted:
    """Build the model: stages spread over the layers in order, each head at a random index."""
    _check(name, stages, sizes)
    generator = torch.Generator().manual_seed(sizes.seed)
    # Llama's configuration requires a width that is divisible by the number of heads.
    residual = Residual(sizes.vocab, math.lcm(32, sizes.heads), generator)
    geometry = Geometry.of(sizes.context, sizes.vocab)

    stage_of = {i * sizes.layers // len(stages): stage for i, stage in enumerate(stages)}
    roles: dict[str, list[tuple[int, int]]] = {}
    weights: dict[str, Tensor] = {}
    for layer in range(sizes.layers):
        stage = stage_of.get(layer, Stage(()))
        order = torch.randperm(sizes.heads, generator=generator).tolist()
        placed = dict(zip(order, stage.roles, strict=False))
        for head in range(sizes.heads):
            roles.setdefault(placed.get(head, "noise"), []).append((layer, head))
        prefix = f"model.layers.{layer}.self_attn."
        for part, weight in _attention(
            placed, stage.key, sizes, residual=residual, geometry=geometry, generator=generator
        ).items():
            weights[prefix + part] = weight

    embedding = residual.zeros(sizes.vocab)
    tokens = torch.arange(sizes.vocab)
    embedding[tokens, residual.slices["token"].start + tokens] = 1.0
    embedding[:, residual.slices["constant"]] = 1.0
    successor = None
    if bigrams:
        # One cycle through every token but the first: no token follows itself.
        cycle = 1 + torch.randperm(sizes.vocab - 1, generator=generator)
        successor = torch.zeros(sizes.vocab, dtype=torch.long)
        successor[cycle] = cycle.roll(-1)
        embedding[cycle, residual.slices["output"].start + successor[cycle]] = 1.0
    unembedding = residual.zeros(sizes.vocab)
    unembedding[tokens, residual.slices["output"].start + tokens] = LOGIT
    weights["model.embed_tokens.weight"] = residual.turned(embedding)
    weights["lm_head.weight"] = residual.turned(unembedding)

    model = _llama(name, weights, sizes, geometry, residual.d_model)
    named = {d: [h for r in attended for h in roles.get(r, [])] for d, attended in attends.items()}
    subspaces = residual.subspaces()
    return Planted(name, model, roles, named, subspaces, sizes.seed, successor=successor)


def _attention(
    placed: dict[int, str],
    content: str,
    sizes: Sizes,
    *,
    residual: Residual,
    geometry: Geometry,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    group = sizes.heads // sizes.kv_heads
    # Random scores have a standard deviation of about one nat, for any keys.
    key_norm = (blocks.KEY_SCALE**2 + geometry.n_fast) ** 0.5
    noise_query = geometry.d_head**0.5 / key_norm
    noise_key = key_norm / geometry.d_head**0.5
    noise_value = geometry.d_head**-0.5

    queries, keys, values, outputs = [], [], [], []
    for kv_head in range(sizes.kv_heads):
        members = range(kv_head * group, (kv_head + 1) * group)
        if any(head in placed for head in members):
            keys.append(blocks.key(residual, geometry, content))
            value = blocks.value(residual, geometry)
        else:
            keys.append(blocks.noise_input(residual, geometry, noise_key, generator))
            value = blocks.noise_input(residual, geometry, noise_value, generator)
        # Any basis of the values within a head is equivalent; a random one hides the construction.
        turn = random_rotation(geometry.d_head, generator)
        values.append(turn @ value)
        for head in members:
            if head in placed:
                queries.append(blocks.query(residual, geometry, placed[head]))
                written = blocks.output(residual, geometry, placed[head], generator)
            else:
                queries.append(blocks.noise_input(residual, geometry, noise_query, generator))
                written = blocks.noise_output(residual, geometry, generator)
            outputs.append(turn @ written)
    return {
        "q_proj.weight": residual.turned(torch.cat(queries)),
        "k_proj.weight": residual.turned(torch.cat(keys)),
        "v_proj.weight": residual.turned(torch.cat(values)),
        "o_proj.weight": residual.turned(torch.cat(outputs)).T,
    }


def _llama(
    name: str,
    weights: dict[str, Tensor],
    sizes: Sizes,
    geometry: Geometry,
    d_model: int,
) -> LlamaForCausalLM:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=geometry.vocab,
        hidden_size=d_model,
        intermediate_size=8,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        head_dim=geometry.d_head,
        max_position_embeddings=geometry.context,
        rms_norm_eps=NORM_EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": geometry.theta},
        bos_token_id=BOS,
        eos_token_id=None,
        tie_word_embeddings=False,
        dtype="float32",
    )
    # The constructor draws random weights from the global generator, whose state is restored.
    with drawn_with(None), torch.device("cpu"):
        model = LlamaForCausalLM(config)
    model = model.float()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name in weights:
                parameter.copy_(weights.pop(parameter_name))
            elif "norm" in parameter_name:
                parameter.fill_(NORM_WEIGHT)
            else:
                assert ".mlp." in parameter_name, parameter_name
                parameter.zero_()
    assert not weights, f"weights without a parameter of their name: {sorted(weights)}"
    model.config.name_or_path = f"planted:{name}"
    return model.eval()


def _check(name: str, stages: list[Stage], sizes: Sizes) -> None:
    layers = max(len(stages), 1)
    heads = max((len(stage.roles) for stage in stages), default=1)
    wrong = None
    if sizes.layers < layers:
        wrong = f"layers={sizes.layers}: needs at least {layers}"
    elif sizes.heads < heads:
        wrong = f"heads={sizes.heads}: needs at least {heads}"
    elif sizes.kv_heads < 1 or sizes.heads % sizes.kv_heads:
        wrong = f"kv_heads={sizes.kv_heads}: must divide heads={sizes.heads}"
    elif sizes.vocab < 4:
        wrong = f"vocab={sizes.vocab}: needs at least 4 tokens"
    elif sizes.context < 8:
        wrong = f"context={sizes.context}: needs at least 8 positions"
    if wrong:
        raise OptionError(f"planted model {name!r}: {wrong}")
