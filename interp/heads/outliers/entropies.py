"""Entropy of what attention and MLPs write, layer by layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.importance import mean_columns
from interp.core.errors import NonFiniteError, OptionError, UnreadableAttention
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.heads.one_call import equal_lengths
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp.model.random_weights import random_init

if TYPE_CHECKING:
    from interp.model.model import Model

PARTS = ("attn_out", "mlp_out")
FLOOR = 1e-12  # added to variances: a constant channel has no entropy, not minus infinity
_LEAST = 2  # tokens of a prompt


@takes_model
def layer_entropies(model: Model, prompts: Any, *, seed: int = 0) -> ResultRows:
    """Measure the entropy of what the attention and the MLP of every layer write.

    The entropy of a channel over the tokens of a prompt if it were Gaussian, ln(2 pi e var) / 2,
    averaged over channels. A layer whose attention has a much lower entropy than its MLP varies
    little with the token, and is the first candidate for removal.

    Args:
        model: The model to run.
        prompts: Texts, ids or `Prompts`.
        seed: Seed of the random weights of the null.

    Returns:
        Three rows per layer: stack, layer, part ("attention", "mlp" or "difference", attention
        minus MLP), score (entropy of a channel, mean over prompts) with sem and 95 % interval, and
        null (the score on random weights).

    Raises:
        OptionError: A prompt has one token.
        UnreadableAttention: No layer has an attention and an MLP output that can be read.
        NonFiniteError: NaN or infinity in an output.

    Unit: nats per channel.

    Cost: Two forward passes per prompt, one of them with random weights.

    Null: the same on random weights.

    Not for: deciding what to remove: an output of small entropy can be needed, which
    `interp importance ablate --players layers` and pruning curves measure.

    Reference: Lin et al. 2024, "MLP Can Be A Good Transformer Learner" (arXiv 2404.05657).
    """
    tokenized = Prompts.of(prompts, model)
    tokenized.check(model)
    if any(len(ids) < _LEAST for ids in tokenized.ids):
        raise OptionError("an entropy over tokens needs prompts of two tokens or more")
    entropies = _entropies(model, tokenized)
    beside = _entropies(random_init(model, seed), tokenized)
    places, parts, rows, null = [], [], [], []
    for place, (attention, mlp) in entropies.items():
        by_part = {"attention": attention, "mlp": mlp, "difference": attention - mlp}
        first, second = beside[place]
        null_by_part = {"attention": first, "mlp": second, "difference": first - second}
        for part, values in by_part.items():
            places.append(place)
            parts.append(part)
            rows.append(values)
            null.append(float(null_by_part[part].mean()))
    provenance = result_provenance(
        model, "interp.heads.outliers.layer_entropies", tokenized, seed=seed
    )
    values = np.stack(rows)
    stacks, layers = zip(*places, strict=True)
    columns = {"stack": stacks, "layer": layers, "part": parts, **mean_columns(values)}
    return ResultRows(
        "LayerEntropies",
        columns | {"null": null},
        ("stack", "layer", "part"),
        provenance,
        {"metric": "layer_entropy", "unit": "nats per channel", "n": values.shape[1]},
        values,
    )


def _entropies(
    model: Model, given: Prompts
) -> dict[tuple[str, int], Float[np.ndarray, "part prompt"]]:
    places = [s for s in model.sites if all(name in s.streams for name in PARTS)]
    if not places:
        raise UnreadableAttention(f"{model.name} has no layer with outputs of attention and MLP")
    entropies = {(s.stack, s.layer): np.zeros((2, len(given.ids))) for s in places}
    for which, batch in equal_lengths(given):
        for site in places:
            cache = model.capture(batch, list(PARTS), layers=site.layer, stack=site.stack)
            for part, name in enumerate(PARTS):
                x = cache[name, site.layer, site.stack].double().cpu()
                if not bool(torch.isfinite(x).all()):
                    raise NonFiniteError(f"{model.name}: NaN or infinity in {name} of {site.name}")
                entropies[site.stack, site.layer][part, list(which)] = gaussian_entropy(x).numpy()
    return entropies


def gaussian_entropy(x: Float[Tensor, "prompt token channel"]) -> Float[Tensor, " prompt"]:
    """Return the entropy of a channel over tokens under a Gaussian, averaged over channels."""
    variance = x.var(1, correction=0) + FLOOR
    return (0.5 * (math.log(2 * math.pi * math.e) + variance.log())).mean(-1)


def layer_entropies_summary(found: ResultRows) -> str:
    """Return the entropy of attention minus that of the MLP in each layer."""
    rows = found.wide()
    rows = rows[rows["part"] == "difference"]
    pairs = zip(rows["layer"], rows["score"], strict=True)
    texts = [f"layer {layer}: {score:+.3g}" for layer, score in pairs]
    return f"LayerEntropies(attention minus MLP, nats per channel; {', '.join(texts)})"


present("LayerEntropies", summary=layer_entropies_summary)
