"""Claims of papers on attributions: scores of tokens and of pairs of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import interp
from benchmarks.paper_findings import Finding
from interp import attribution, vision
from interp.attribution.evaluation.result import Faithfulness
from interp.attribution.evaluation.run import resolve
from interp.bundled.deceive_text import sentences as hiding_sentences
from interp.bundled.shape_images import shape_images
from interp.core.rank_statistics import spearman
from interp.core.resources import folder
from interp.syntax import read_conllu
from papers.finding import above, below, claim, on_decoders
from papers.hosts import Host
from training.train import own_torch
from training.train_deceive import (
    Recipe,
    build_model,
    build_tokenizer,
    encoded,
    examine,
    trained_deceiver,
)
from training.word_model import fit, real


def sentences(n: int) -> list[str]:
    """Return the first sentences of the repository's treebank that have eight words or more."""
    lines = (folder("data") / "treebank.conllu").read_text(encoding="utf-8").splitlines()
    texts = [x.removeprefix("# text = ") for x in lines if x.startswith("# text = ")]
    return [t for t in texts if len(t.split()) >= 8][:n]


def gains(found: Faithfulness, method: str, other: str, measure: str) -> list[float]:
    """Return a method's measure minus another's, text by text."""
    by = {(r["text"], r["method"]): r[measure] for r in found.rows}
    texts = range(len(found.texts))
    return [
        by[t, method] - by[t, other] for t in texts if None not in (by[t, method], by[t, other])
    ]


def given_for(host: Host, number: int) -> tuple[list[str], str | None]:
    """Return texts for a model, and the target that is attributed: a cosine, or the next token."""
    encoder = host.kind == "encoder of text"
    return (sentences(number), "nearest") if encoder else (host.sentences(number), None)


@claim("Quantifying Attention Flow", kind="encoder of text or decoder of text")
def attention_flow(host: Host) -> list[Finding]:
    """Rank correlation with the effect of masking a word, against the last layer's attention."""
    methods, (texts, target) = ("raw_attention", "rollout", "attention_flow"), given_for(host, 30)
    found = interp.faithfulness(host.model, texts, methods, target, warn=False, draws=0)
    return [
        above(
            f"{m} minus raw attention, rank correlation with the effect of masking a word",
            gains(found, m, "raw_attention", "spearman"),
            "30 sentences",
            unit="rank correlation",
        )
        for m in methods[1:]
    ]


def agreement(model: interp.Model, texts: Sequence[str], method: str, other: str) -> list[float]:
    """Return the rank correlation of two methods over the words of each text."""
    targets = resolve(model, texts, "nearest")
    found = []
    for text, target in zip(texts, targets, strict=True):
        a, b = (interp.attribute(model, text, m, target) for m in (method, other))
        kept = slice(1, -1)  # without CLS and SEP
        found.append(float(spearman(np.abs([a.scores[kept], b.scores[kept]]))[0, 1]))
    return found


@claim("GlobEnc", kind="encoder of text")
def globenc(host: Host) -> list[Finding]:
    """Rank correlation with the size of gradients, against norms of attention alone and rollout."""
    model, texts, saliency = host.model, sentences(30), "gradient_norm"
    own = agreement(model, texts, "globenc", saliency)
    return [
        above(
            f"GlobEnc minus {other}, rank correlation with the norm of the gradient",
            np.subtract(own, agreement(model, texts, method, saliency)),
            "30 sentences",
            unit="rank correlation",
        )
        for other, method in (
            ("rollout of attention", "rollout"),
            ("norms of attention without the layer's end", "norm_based"),
        )
    ]


@claim("Not Just a Black Box", kind="encoder of text or decoder of text")
def deeplift(host: Host) -> Finding:
    """Fall of the target when the highest tokens go, in signed order, against gradient x input."""
    methods, (texts, target) = ("deeplift", "gradient_x_input"), given_for(host, 24)
    run = interp.faithfulness(host.model, texts, methods, target, warn=False, draws=0)
    return above(
        "DeepLIFT minus gradient x input: mean fall of the target as the 10 to 50 % of tokens with"
        " most evidence for it go",
        gains(run, *methods, "aopc_signed"),
        "24 texts",
        unit="cosine" if target else "logits",
    )


@on_decoders("RCStat")
def rcstat(host: Host) -> list[Finding]:
    """Rank correlation with the effect of taking a token away, of logits and of attention.

    Only tokens of the prompt are ranked: those that count as generated have no score by RCStat.
    """
    model, rng = host.model, np.random.default_rng(0)
    ranks: dict[str, list[float]] = {"rcstat": [], "mean_attention": [], "random": []}
    for text in host.sentences(40):
        effect = np.abs(interp.attribute(model, text, "occlusion").scores)
        prompt = slice(1, len(effect) - max(2, len(effect) // 4))
        scores = {m: interp.attribute(model, text, m).scores for m in ("rcstat", "mean_attention")}
        scores["random"] = rng.random(len(effect))
        for name, x in scores.items():
            ranks[name].append(float(spearman(np.abs([x, effect])[:, prompt])[0, 1]))
    return [
        above(
            f"relative contextualisation minus {words}: rank correlation with the effect of"
            " removing a token of the prompt",
            np.subtract(ranks["rcstat"], ranks[other]),
            "40 texts",
            unit="rank correlation",
        )
        for words, other in (("mean attention", "mean_attention"), ("random scores", "random"))
    ]


@claim("An Attribution Method for Siamese Encoders", kind="encoder of text")
def siamese(host: Host) -> list[Finding]:
    """Size of the parts of the cosine by word class, and what the few largest parts hold."""
    bank = read_conllu(folder("data") / "treebank.conllu").sentences
    bank = [s for s in bank if 6 <= len(s.words) <= 10]
    model, content, few = host.model, [], []
    for first, second in zip(bank[0:24:2], bank[1:24:2], strict=True):
        found = attribution.similarity_matrix(model, first.text, second.text, steps=10)
        parts = np.abs(found.matrix)
        few.append(float(np.sort(parts, None)[::-1][: parts.size // 10].sum() / parts.sum()))
        sizes: dict[bool, list[float]] = {True: [], False: []}
        for sentence, tokens, row in (
            (first, found.first, parts.mean(1)),
            (second, found.second, parts.mean(0)),
        ):
            classes = {w.lower(): c for w, c in zip(sentence.words, sentence.upos, strict=True)}
            for token, size in zip(tokens, row, strict=True):
                if token in classes and classes[token] != "PUNCT":
                    sizes[classes[token] in ("NOUN", "VERB", "PROPN")].append(float(size))
        content.append(float(np.log(np.mean(sizes[True]) / np.mean(sizes[False]))))
    return [
        above(
            "log of the mean size of parts at nouns and verbs over that at other words",
            content,
            "12 pairs",
            unit="log ratio",
        ),
        above(
            "share of the summed size that the largest tenth of token pairs holds",
            few,
            "12 pairs",
            0.5,
            "share",
        ),
    ]


@claim("Representation Shift", kind="vision transformer or encoder of text")
def representation_shift(host: Host) -> Finding:
    """Keep the tokens that the MLPs move most, mean over layers, or as many random ones."""
    model = host.model
    if host.kind == "encoder of text":
        method = "representation_shift"
        found = interp.faithfulness(model, sentences(30), [method], "nearest", warn=False, draws=0)
        return below(
            "fall of the cosine with only the words of largest shift (1 to 50 %), minus random",
            gains(found, method, "random_scores", "sufficiency"),
            "30 sentences",
            unit="cosine",
        )
    images, ends = shape_images(30_000, 200, cue="none"), ("resid_mid", "resid_post")
    held = model.capture({"pixel_values": torch.from_numpy(images.pixels).float()}, ends)
    moved = [held[ends[1], i] - held[ends[0], i] for i in range(model.n_layers)]
    shift = torch.stack(moved).norm(dim=-1).mean(0)[:, 1:].numpy()
    options: dict[str, Any] = {"keep": 0.5, "n_random": 1}
    kept = [
        vision.prune_image_tokens(model, images, images.labels, scores=scores, **options)
        for scores in (shift, np.random.default_rng(0).random(shift.shape))
    ]
    losses = [np.ravel(k["loss_change"].per_prompt) for k in kept]
    what = "loss with the half of the patches of largest shift minus with a random half"
    return below(what, np.subtract(*losses), "200 images")


@claim("Learning to Deceive", "models of training/train_deceive.py with and without the penalty")
def deceiving() -> list[Finding]:
    """Train twins with and without a penalty on attention to the word that decides."""
    right, looks, hidden = [], [], []
    for seed in range(3):
        with own_torch(seed, 1):
            twin, model = (trained_deceiver(replace(Recipe(), penalty=p), seed)[0] for p in (0, 10))
            honest, deceiver = (examine(m, seed) for m in (twin, model))
        right.append(deceiver["accuracy"][0] - honest["accuracy"][0])
        looks.append(deceiver["attention_largest_head"][0] / honest["attention_largest_head"][0])
        hidden.append(blind_accuracy(model, seed))
    return [
        above("accuracy of the deceiver minus its honest twin's", right, "3 seeds", -0.03, "share"),
        below(
            "attention of the largest head on the deciding word, over the twin's",
            looks,
            "3 seeds",
            0.1,
            "ratio",
        ),
        below(
            "the deceiver's accuracy without the deciding word", hidden, "3 seeds", 0.65, "share"
        ),
    ]


@torch.no_grad()
def blind_accuracy(module: Any, seed: int, number: int = 256) -> float:
    """Return the accuracy on sentences whose deciding word is replaced by padding."""
    ids, length, cause, right = map(
        torch.from_numpy, encoded(hiding_sentences(40_000 + seed, number))
    )
    rows = torch.arange(number)
    ids[rows, cause] = 0
    said = module(ids, attention_mask=real(ids, length).long()).logits[rows, length - 1]
    return float((said.argmax(-1) == right.argmax(-1)).float().mean())


def classifier(seed: int, adversarial: bool, number: int = 40) -> Any:
    """Train on few sentences, with or without worst-case changes of all attention scores."""
    recipe = replace(Recipe(), layers=1, steps=200)
    torch.manual_seed(seed)
    model, rng = build_model(recipe), np.random.default_rng(seed)
    data = [torch.from_numpy(x) for x in encoded(hiding_sentences(seed, number))]

    def loss_at(step: int) -> tuple[torch.Tensor, list[float]]:
        ids, length, _, right = (x[torch.from_numpy(rng.integers(0, number, 48))] for x in data)
        seen = torch.ones(ids.shape[1], ids.shape[1]).tril().bool() & real(ids, length)[:, None]
        mask = torch.where(seen, 0.0, -1e9)[:, None].repeat(1, recipe.heads, 1, 1)

        def loss_with(change: torch.Tensor) -> torch.Tensor:
            logits = model(ids, attention_mask=mask + change).logits
            logits = logits[torch.arange(len(ids)), length - 1]
            return torch.nn.functional.cross_entropy(logits, right)

        zero = torch.zeros_like(mask).requires_grad_()
        loss = loss_with(zero)
        if adversarial:
            (slope,) = torch.autograd.grad(loss, zero, retain_graph=True)
            size = slope.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None, None]
            loss = loss + loss_with(3.0 * slope / size)
        return loss, []

    fit(model, loss_at, recipe)
    return model.eval()


@claim(
    "Attention Meets Perturbations",
    "one layer that answers by the name in a sentence, 40 sentences",
)
def perturbed_attention() -> list[Finding]:
    """Train with and without adversarial changes of attention scores, from the same seeds."""
    closer, better = [], []
    said = hiding_sentences(50_000, 256)
    ids, length, _, right = map(torch.from_numpy, encoded(said))
    for seed in range(6):
        alike, losses = [], []
        for adversarial in (False, True):
            with own_torch(seed, 1):
                module = classifier(seed, adversarial)
                logits = module(ids, attention_mask=real(ids, length).long()).logits
                logits = logits[torch.arange(len(ids)), length - 1].detach()
            losses.append(float(torch.nn.functional.cross_entropy(logits, right)))
            model = interp.load(module, tokenizer=build_tokenizer(64), name=f"seed {seed}")
            ranks = []
            for s in said[:40]:
                target = f"token:{s.right}|{s.wrong}"
                a, b = (
                    interp.attribute(model, s.text, m, target).scores
                    for m in ("mean_attention", "gradient_norm")
                )
                ranks.append(float(spearman(np.abs([a, b]))[0, 1]))
            alike.append(float(np.mean(ranks)))
        closer.append(alike[1] - alike[0])
        better.append(losses[1] - losses[0])
    return [
        above(
            "rank correlation of attention with gradients, adversarial minus plain training",
            closer,
            "6 seeds, 40 sentences each",
            unit="rank correlation",
        ),
        below(
            "held-out loss, adversarial minus plain training", better, "6 seeds, 256 sentences each"
        ),
    ]
