"""Claims on heads of image models and of models of sound: cues, biases, registers, windows."""

from __future__ import annotations

import copy
import types
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from interp.bundled.shape_images import shape_images
from interp.heads.geometry._alignment import projection_weighted
from interp.vision import (
    added_register,
    correct_spurious_heads,
    locate_spurious_heads,
    map_agreement,
    register_neurons,
)
from papers.finding import SEEDS, TRAINED, Finding, above, below, claim, exact
from papers.fitting import step_down
from papers.hosts import Host
from training import forms


@claim("Locate-Then-Correct", kind="vision transformer", among="spurious")
def corrected(host: Host) -> list[Finding]:
    """Locate heads on half of the images; correct them, or random ones, on others, 5 draws."""
    model, gain, over = host.model, [], []
    for seed in range(5):
        first, then = (shape_images(100 + 2 * seed + k, 240, aligned=0.5) for k in (0, 1))
        found = locate_spurious_heads(model, first, first.labels, first.cues)
        done = correct_spurious_heads(model, then, then.labels, then.cues, found)
        rows = done.to_pandas()
        worst = rows[(rows["group"] == "worst group") & (rows["when"] == "gain")].iloc[0]
        gain.append(float(worst["score"]))
        over.append(float(worst["score"] - worst["null"]))
    rows = "5 draws of 240 images to locate and 240 to judge"
    return [
        above(
            "accuracy of the worst group after the correction minus before",
            gain,
            rows,
            unit="accuracy",
        ),
        above(
            "accuracy of the worst group after the correction minus that of random heads",
            over,
            rows,
            unit="accuracy",
        ),
    ]


@claim("Attention IoU", kind="vision transformer", among="spurious")
def bias(host: Host) -> list[Finding]:
    """Compare attention with the corner that a model learned to use with that of bundled:shapes."""
    images = shape_images(300, 120, cue="random")
    corner = np.broadcast_to(images.corner, images.masks.shape)
    scores: dict[str, np.ndarray] = {}
    for name, model in (("biased", host.model), ("other", interp.load("bundled:shapes"))):
        for mask, what in ((corner, "corner"), (images.masks, "shape")):
            found = map_agreement(model, images, mask)
            rows = np.array(found.metrics) == "attention_iou"
            rows &= np.array(found.parts) == "class_attention"
            scores[name, what] = found.per_prompt[rows][0]
    each = "120 images, whose corners suggest random classes"
    return [
        above(
            "Attention-IoU of class attention with the corner, biased model minus the other",
            scores["biased", "corner"] - scores["other", "corner"],
            each,
            unit="Attention-IoU",
        ),
        below(
            "Attention-IoU of class attention with the shape, biased model minus the other",
            scores["biased", "shape"] - scores["other", "shape"],
            each,
            unit="Attention-IoU",
        ),
    ]


def _with_neuron(host: Host, seed: int) -> interp.Model:
    """Add to a model a neuron that fires at the last patch and writes a long vector."""
    module: Any = copy.deepcopy(host.model.module)
    place, written = torch.randn(2, 32, generator=torch.Generator().manual_seed(seed))
    place = (place - place.mean()) / (place - place.mean()).norm()
    with torch.no_grad():
        module.vit.embeddings.position_embeddings[0, -1] += 8 * place
        for layer in module.vit.layers:
            for name, rows, columns in (("fc1", 1, 0), ("fc2", 0, 1)):
                old = getattr(layer.mlp, name)
                new = nn.Linear(old.in_features + columns, old.out_features + rows)
                new.weight.zero_()
                new.bias.zero_()
                new.weight[: old.out_features, : old.in_features] = old.weight
                new.bias[: old.out_features] = old.bias
                setattr(layer.mlp, name, new)
        module.config.intermediate_size += 1
        mlp = module.vit.layers[0].mlp
        mlp.fc1.weight[-1], mlp.fc1.bias[-1] = 4 * place, -10.0
        mlp.fc2.weight[:, -1] = 60 * written / written.norm()
    return interp.load(module)


@claim("Vision Transformers Don't Need", kind="vision transformer")
def registers(host: Host) -> list[Finding]:
    """Rank neurons on some images; let an added token take the best over, or a random one's."""
    share, less, accuracy, first = [], [], [], 0
    for seed in range(2, 7):
        model = _with_neuron(host, seed)
        images = shape_images(400 + seed, 240, aligned=0.5)
        ranked = register_neurons(model, images.part(slice(0, 80)), keep=1)
        first += ranked.parts[0] == "L0N64"
        judged = images.part(slice(80, 240))
        found = added_register(model, judged, ranked, judged.labels)
        rows = found.to_pandas().set_index(["part", "metric"])
        last = rows.loc[("layer 2, with register", "high_norm_share")]
        share.append(float(last["score"]))
        less.append(float(last["score"] - last["null"]))
        before, after = (rows.loc[(f"{x} register", "accuracy")] for x in ("without", "with"))
        accuracy.append(float(after["score"] - before["score"]))
    rows = "5 planted neurons, 160 images each"
    return [
        exact(
            "share of planted neurons that are ranked first of 195",
            first / 5,
            "share",
            "above",
            0.9,
            rows,
        ),
        below("share of patches of high norm with the added token", share, rows, 0.001, "share"),
        below(
            "share of patches of high norm, token of the neuron minus of a random one",
            less,
            rows,
            unit="share",
        ),
        above("accuracy with the added token minus without", accuracy, rows, -0.01, "accuracy"),
    ]


WINDOWS = (3, 7, 15, 96)  # of the four heads, in tokens on either side; the last sees all
PITCHES, HIDDEN, TUNE, TIMES = 32, 32, 12, 4


def _melodies(
    number: int, rng: np.random.Generator
) -> tuple[Int[Tensor, "row pos"], Int[Tensor, "row pos"], Float[Tensor, "row pos"]]:
    """Return tunes of small steps, each repeated at other pitches, four tenths of them hidden."""
    steps = rng.integers(-2, 3, size=(number, 1, TUNE)).cumsum(2)
    start = rng.integers(PITCHES, size=(number, TIMES, 1))
    notes = torch.tensor(((start + steps) % PITCHES).reshape(number, -1))
    hidden = torch.tensor(rng.random(notes.shape) < 0.4)
    return notes.masked_fill(hidden, HIDDEN), notes, hidden.float()


def _hearing(windows: bool, seed: int) -> tuple[interp.Model, float]:
    """Train two layers of four heads on hidden notes; return the model and its held-out loss."""
    model: Any = forms.build(
        "both_ways",
        seed=seed,
        gain=1.0,
        vocab_size=PITCHES + 1,
        hidden_size=64,
        max_position_embeddings=TUNE * TIMES,
    )

    def seen(self: Any, given: Any, rows: Tensor) -> Tensor:
        far = (given.every - rows[:, None]).abs()
        return far <= torch.tensor(WINDOWS)[:, None, None]

    for block in model.blocks if windows else ():
        block.attention.rule.seen = types.MethodType(seen, block.attention.rule)
    rng, adam = np.random.default_rng(seed), torch.optim.Adam(model.parameters())

    def loss(number: int) -> Tensor:
        heard, notes, hidden = _melodies(number, rng)
        each = F.cross_entropy(model(heard).logits.mT, notes, reduction="none")
        return (each * hidden).sum() / hidden.sum()

    for step in range(800):
        step_down(adam, loss(16), 3e-3 * min(1, (step + 1) / 50) * (1 - 0.9 * step / 800))
    with torch.no_grad():
        return interp.load(model.eval()), float(loss(500))


def _outputs(model: interp.Model) -> Tensor:
    """Return the heads' outputs over notes, [layer, head, note, d_head]."""
    heard = _melodies(40, np.random.default_rng(99))[0]
    with torch.no_grad():
        cache = model.capture(heard.tolist(), ["z"])
    return torch.stack([cache["z", i].transpose(0, 1).flatten(1, 2) for i in range(2)])


def _spread(model: interp.Model) -> tuple[float, float]:
    """Return the spread over heads of the distance of attention, and of its entropy."""
    heard = _melodies(8, np.random.default_rng(98))[0].tolist()
    table = interp.score(model, ["attention_distance", "entropy"], heard, null="none")
    std = table.to_pandas().groupby("metric")["score"].std()
    return float(std["attention_distance"]), float(std["entropy"])


@claim("Masked Autoencoders with Multi-Window", "both_ways with windows per head, on melodies")
def multi_window() -> list[Finding]:
    """Hide notes of generated melodies: heads with windows of four sizes, or all without."""
    better, near, wide = [], [], []
    for seed in SEEDS:
        (model, loss), (plain, plain_loss) = (_hearing(x, seed) for x in (True, False))
        better.append(loss - plain_loss)
        wide.append(_spread(model)[0] - _spread(plain)[0])
        first, second = _outputs(model)
        alike = projection_weighted(first[None], second[None], 4, torch.float32)[0].numpy()
        same = np.eye(4, dtype=bool)
        near.append(float(alike[same].mean() - alike[~same].mean()))
    rows = f"{TRAINED}, on hidden notes of generated melodies"
    return [
        below("loss with windows minus without", better, rows),
        above(
            "spread over heads of the distance of attention, with windows minus without",
            wide,
            rows,
            unit="tokens",
        ),
        above(
            "PWCCA of heads of two layers with one window, minus with two",
            near,
            rows,
            unit="correlation",
        ),
    ]
