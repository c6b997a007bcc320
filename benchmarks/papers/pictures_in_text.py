"""Claims on the tokens of pictures inside text: what is attended, dropped, subtracted, moved."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

import interp
from interp.core.rank_statistics import paired_spearman
from interp.core.result_rows import ResultRows
from interp.planted import image_text
from interp.vision import language
from papers.finding import SEEDS, Finding, above, below, claim, exact
from papers.picture_models import Pictures, question, trained

READERS = (
    f"{len(SEEDS)} LLaVA models (tower of 2 layers, text of 4) trained to name colours of objects"
)
NUMBER = 120
ROWS = f"{len(SEEDS)} models, {NUMBER} pictures each"
BLUR = 2.0  # standard deviation of noise on pictures: models err, towards what is usual


@cache
def _asked(seed: int, blur: float = 0.0) -> Pictures:
    """Pictures whose asked object never has the colour that is usual for its kind."""
    pictures = Pictures(NUMBER, 900_000 + seed, usual=0.0)
    draw = torch.Generator().manual_seed(seed)
    pictures.pixels += blur * torch.randn(pictures.pixels.shape, generator=draw)
    return pictures


@cache
def _dropped(by: Any, layer: int, drop: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the change of the loss per picture, and that with random tokens."""
    found = []
    for seed in SEEDS:
        p = _asked(seed)
        found.append(
            language.drop_tokens(
                trained("text", seed),
                p.inputs(),
                p.answers.tolist(),
                layer=layer,
                drop=drop,
                by=by,
                n_random=3,
            )
        )
    return _both(found)


def _both(found: list[ResultRows]) -> tuple[np.ndarray, np.ndarray]:
    changes = [np.concatenate([getattr(f, x)[0] for f in found]) for x in ("per_prompt", "random")]
    return changes[0], changes[1]


@cache
def _contrasted(branch: str) -> tuple[np.ndarray, np.ndarray]:
    found = []
    for seed in SEEDS:
        p = _asked(seed, BLUR)
        found.append(
            language.contrast_pictures(
                trained("text", seed),
                p.inputs(),
                p.answers.tolist(),
                branches=(branch,),
                outliers=4,
            )
        )
    return _both(found)


def _looks(seed: int) -> tuple[Float[np.ndarray, "picture patch"], ...]:
    """Return attention to patches: of the tower's class token, and of the text's last token."""
    model, p = trained("text", seed), _asked(seed)
    with torch.no_grad():
        tower = model.joint.capture(p.inputs(), ["pattern"], layers=1, stack="vision")
        first = tower["pattern", 1, "vision"][:, :, 0, 1:].mean(1)
        text = model.joint.capture(p.inputs(), ["pattern"], stack="decoder")
        last = [text["pattern", i, "decoder"][:, :, -1, 1:17].mean(1) for i in range(4)]
    return first.numpy(), torch.stack(last).mean(0).numpy()


@claim("DAMRO", READERS)
def damro() -> list[Finding]:
    """Compare the attention of tower and text; contrast blurred pictures with outliers alone."""
    alike, outside = [], []
    for seed in SEEDS:
        cls, text = _looks(seed)
        alike += paired_spearman(cls, text).tolist()
        for each, shown in zip(cls, _asked(seed).objects.numpy(), strict=True):
            outside.append(1 - shown[np.argsort(-each)[:4]].mean())
    change, random = _contrasted("outliers")
    return [
        above(
            "rank correlation of the class token's and the text's attention to patches",
            alike,
            ROWS,
            unit="rank correlation",
        ),
        above(
            "share of background among the class token's 4 outliers (by chance 0.75)",
            outside,
            ROWS,
            0.75,
            "share",
        ),
        above(
            "probability of the answer with contrast minus without",
            change,
            ROWS,
            unit="probability",
        ),
        above(
            "probability of the answer, contrast with outliers minus with random patches",
            change - random,
            ROWS,
            unit="probability",
        ),
    ]


@claim("Don't Miss the Forest for the Trees", READERS)
def blind_tokens() -> list[Finding]:
    """Contrast answers on blurred pictures with a run on the blind tokens, or on random ones."""
    change, random = _contrasted("blind")
    there = np.isfinite(random)
    return [
        above(
            "probability of the answer with contrast minus without",
            change,
            ROWS,
            unit="probability",
        ),
        above(
            "probability of the answer, contrast with blind tokens minus with random tokens",
            (change - random)[there],
            f"{there.sum()} pictures with blind tokens",
            unit="probability",
        ),
    ]


@claim("See What You Are Told", "planted: image_text(prior=0.65, distracted=0.27), a visual sink")
def visual_sinks() -> list[Finding]:
    """Find the sinks by massive dimensions; move their attention; remove them, or random tokens."""
    planted = image_text(prior=0.65, distracted=0.27)
    model = interp.load(planted.model, name="distracted")
    inputs, answers = planted.prompts(40)
    markers = planted.layout(40)[2]
    sinks = language.visual_sinks(model, inputs)
    hits = [sinks.sinks[n] == (2 + markers[i],) for n, i in enumerate(sinks.judged)]
    moved = language.redistribution(model, inputs, answers, last_layer=True)
    gain = moved.per_prompt[0] - moved.random[0]
    loss = []
    for i in range(40):
        one = {k: x[i : i + 1] for k, x in inputs.items()}
        mask = torch.ones_like(one["input_ids"])
        log_p = [model.module(**one, attention_mask=mask).logits[0, -1].log_softmax(-1)]
        mask[0, 2 + markers[i]] = 0
        log_p.append(model.module(**one, attention_mask=mask).logits[0, -1].log_softmax(-1))
        loss.append(float((log_p[0] - log_p[1])[answers[i]].detach()))
    rows = "40 prompts, found on half and judged on the other"
    return [
        exact(
            "share of pictures whose only sink is the planted one",
            float(np.mean(hits)),
            "share",
            "above",
            0.95,
            rows,
        ),
        below("loss without the sink, minus with it", loss, "40 prompts", 0.05),
        above(
            "change of the answer by moving the sink's attention minus a random token's",
            gain,
            rows,
            unit=str(moved.facts["unit"]),
        ),
    ]


@claim("[CLS] Token Tells Everything", READERS)
def class_token() -> list[Finding]:
    """Drop three quarters of the picture by the class token, by the text, or at random."""
    change, random = _dropped("class_token", 2, 0.75)
    by_text, _ = _dropped("attention", 2, 0.75)
    return [
        below(f"loss with a quarter kept by the class token minus {words}", change - other, ROWS)
        for words, other in (("at random", random), ("by the text's attention", by_text))
    ]


@claim("VFlowOpt", READERS)
def flow() -> list[Finding]:
    """Drop three quarters of the picture before the text, by relevance and entropy."""
    change, random = _dropped("flow", 0, 0.75)
    attention, _ = _dropped("class_token", 0, 0.75)
    return [
        below(f"loss with a quarter kept by the map minus {words}", change - other, ROWS)
        for words, other in (
            ("at random", random),
            ("by the class token's attention alone", attention),
        )
    ]


@claim("Efficient LLaMA-3.2-Vision", "a ViT and a decoder of 4 layers that attends to it, trained")
def trimmed() -> list[Finding]:
    """Trim half of the image features by the first cross attention, or at random."""
    model, pictures = trained("cross", 0), Pictures(NUMBER, 900_000, usual=0.0)
    given, target = question(pictures), pictures.answers
    with torch.no_grad():
        first = model.capture(given, ["pattern"], layers=0, stack="cross")
        mass: torch.Tensor = first["pattern", 0, "cross"].mean((1, 2))
    draw = torch.Generator().manual_seed(0)
    heads = [f"L{layer}H{h}" for layer in range(1, 4) for h in range(4)]
    losses = []
    for rank in (None, mass, torch.rand(mass.shape, generator=draw)):
        edits = []
        if rank is not None:
            gone = rank < rank.median(1, keepdim=True).values

            def trim(pattern: torch.Tensor, gone: torch.Tensor = gone) -> torch.Tensor:
                left = pattern * ~gone[:, None, None]
                return left / left.sum(-1, keepdim=True)

            edits = [interp.model.set_pattern(heads, trim, stack="cross")]
        with torch.no_grad(), model.edited(*edits):
            logits = model.run(given)[:, -1]
        losses.append(torch.nn.functional.cross_entropy(logits, target, reduction="none").numpy())
    top = mass.sort(1, descending=True).values[:, : mass.shape[1] // 2].sum(1)
    rows = f"{NUMBER} pictures"
    return [
        above(
            "cross attention of layer 0 on the half of the features with most",
            top,
            rows,
            0.75,
            "weight",
        ),
        below(
            "loss with half of the features from layer 1 on, minus all",
            losses[1] - losses[0],
            rows,
            0.05,
        ),
        below(
            "loss with the most attended half of the features minus a random half",
            losses[1] - losses[2],
            rows,
        ),
    ]
