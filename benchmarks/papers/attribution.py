"""Claims of papers on attributions: scores of tokens and of pairs of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import interp
from interp import attribution, vision
from interp.attribution.evaluation.result import Faithfulness
from interp.attribution.evaluation.run import resolve
from interp.bundled.deceive_text import sentences as hiding_sentences
from interp.bundled.shape_images import shape_images
from interp.core.rank_statistics import spearman
from interp.core.resources import folder
from interp.syntax import read_conllu
from papers.finding import Numbers, Worded, claim, on_decoders
from papers.hosts import Host
from training import train_deceive
from training.train import own_torch
from training.word_model import fit, real


def sentences(n: int) -> list[str]:
    """Return the first sentences of the repository's treebank that have eight words or more."""
    lines = (folder("data") / "treebank.conllu").read_text(encoding="utf-8").splitlines()
    texts = [x.removeprefix("# text = ") for x in lines if x.startswith("# text = ")]
    return [t for t in texts if len(t.split()) >= 8][:n]


def gains(found: Faithfulness, method: str, other: str, measure: str) -> list[float]:
    """Return a method's measure minus another's, text by text."""
    by = {(r["text"], r["method"]): r[measure] for r in found.rows}
    pairs = [(by[t, method], by[t, other]) for t in range(len(found.texts))]
    return [a - b for a, b in pairs if None not in (a, b)]


def given_for(host: Host, number: int) -> tuple[list[str], str | None]:
    """Return texts for a model, and the target that is attributed: a cosine, or the next token."""
    encoder = host.kind == "encoder of text"
    return (sentences(number), "nearest") if encoder else (host.sentences(number), None)


@claim("Quantifying Attention Flow", kind="encoder of text or decoder of text")
def attention_flow(host: Host) -> Numbers:
    """Rank correlation with the effect of masking a word, against the last layer's attention."""
    methods, (texts, target) = ("raw_attention", "rollout", "attention_flow"), given_for(host, 30)
    found = interp.faithfulness(host.model, texts, methods, target, warn=False, draws=0)
    return tuple(gains(found, m, "raw_attention", "spearman") for m in methods[1:])


def agreement(model: interp.Model, texts: Sequence[str], method: str, other: str) -> list[float]:
    """Return the rank correlation of two methods over the words of each text."""
    targets = resolve(model, texts, "nearest")
    found = []
    for text, target in zip(texts, targets, strict=True):
        both = [interp.attribute(model, text, m, target).scores for m in (method, other)]
        found.append(float(spearman(np.abs(both)[:, 1:-1])[0, 1]))  # without CLS and SEP
    return found


@claim("GlobEnc", kind="encoder of text")
def globenc(host: Host) -> Numbers:
    """Rank correlation with the size of gradients, against norms of attention alone and rollout."""
    model, texts, saliency = host.model, sentences(30), "gradient_norm"
    own = agreement(model, texts, "globenc", saliency)
    for method in ("rollout", "norm_based"):
        yield np.subtract(own, agreement(model, texts, method, saliency))


@claim("Not Just a Black Box", kind="encoder of text or decoder of text")
def deeplift(host: Host) -> Numbers:
    """Fall of the target when the highest tokens go, in signed order, against gradient x input."""
    methods, (texts, target) = ("deeplift", "gradient_x_input"), given_for(host, 24)
    run = interp.faithfulness(host.model, texts, methods, target, warn=False, draws=0)
    more = gains(run, *methods, "aopc_signed")
    return Worded(more, {"unit": "cosine"}) if target else more


@on_decoders("RCStat")
def rcstat(host: Host) -> Numbers:
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
    own, *others = ranks.values()
    return tuple(np.subtract(own, other) for other in others)


@claim("An Attribution Method for Siamese Encoders", kind="encoder of text")
def siamese(host: Host) -> Numbers:
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
    return content, few


@claim("Representation Shift", kind="vision transformer or encoder of text")
def representation_shift(host: Host) -> Numbers:
    """Keep the tokens that the MLPs move most, mean over layers, or as many random ones."""
    model = host.model
    if host.kind == "encoder of text":
        method = "representation_shift"
        found = interp.faithfulness(model, sentences(30), [method], "nearest", warn=False, draws=0)
        return gains(found, method, "random_scores", "sufficiency")
    images, ends = shape_images(30_000, 200, cue="none"), ("resid_mid", "resid_post")
    held = model.capture({"pixel_values": torch.from_numpy(images.pixels).float()}, ends)
    moved = [held[ends[1], i] - held[ends[0], i] for i in range(model.n_layers)]
    shift = torch.stack(moved).norm(dim=-1).mean(0)[:, 1:].numpy()
    prune = partial(vision.prune_image_tokens, model, images, images.labels, keep=0.5, n_random=1)
    kept = [prune(scores=x) for x in (shift, np.random.default_rng(0).random(shift.shape))]
    losses = [np.ravel(k["loss_change"].per_prompt) for k in kept]
    what = "loss with the half of the patches of largest shift minus with a random half"
    words = {"what": what, "unit": "nats", "samples": "200 images"}
    return Worded(np.subtract(*losses), words)


@claim("Learning to Deceive")
def deceiving() -> Numbers:
    """Train twins with and without a penalty on attention to the word that decides."""
    right, looks, hidden = [], [], []
    for seed in range(3):
        with own_torch(seed, 1):
            twin, model = (
                train_deceive.trained_deceiver(replace(train_deceive.Recipe(), penalty=p), seed)[0]
                for p in (0, 10)
            )
            honest, deceiver = (train_deceive.examine(m, seed) for m in (twin, model))
        right.append(deceiver["accuracy"][0] - honest["accuracy"][0])
        looks.append(deceiver["attention_largest_head"][0] / honest["attention_largest_head"][0])
        hidden.append(blind_accuracy(model, seed))
    return right, looks, hidden


@torch.no_grad()
def blind_accuracy(module: Any, seed: int, number: int = 256) -> float:
    """Return the accuracy on sentences whose deciding word is replaced by padding."""
    ids, length, cause, right = tensors(hiding_sentences(40_000 + seed, number))
    ids[torch.arange(number), cause] = 0
    said = answered(module, ids, length)
    return float((said.argmax(-1) == right.argmax(-1)).float().mean())


def tensors(sentences: Any) -> list[Tensor]:
    """Return ids, lengths, deciding words and answers of sentences."""
    return [torch.from_numpy(x) for x in train_deceive.encoded(sentences)]


def answered(module: Any, ids: Tensor, length: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the logits at the ends of sentences."""
    seen = real(ids, length).long() if mask is None else mask
    return module(ids, attention_mask=seen).logits[torch.arange(len(ids)), length - 1]


def classifier(seed: int, adversarial: bool, number: int = 40) -> Any:
    """Train on few sentences, with or without worst-case changes of all attention scores."""
    recipe = replace(train_deceive.Recipe(), layers=1, steps=200)
    model, rng = train_deceive.build_model(recipe), np.random.default_rng(seed)
    data = tensors(hiding_sentences(seed, number))

    def loss_at(step: int) -> tuple[Tensor, list[float]]:
        ids, length, _, right = (x[torch.from_numpy(rng.integers(0, number, 48))] for x in data)
        seen = torch.ones(ids.shape[1], ids.shape[1]).tril().bool() & real(ids, length)[:, None]
        mask = torch.where(seen, 0.0, -1e9)[:, None].repeat(1, recipe.heads, 1, 1)

        def loss_with(change: Tensor) -> Tensor:
            return F.cross_entropy(answered(model, ids, length, mask + change), right)

        zero = torch.zeros_like(mask).requires_grad_()
        loss = loss_with(zero)
        if adversarial:
            (slope,) = torch.autograd.grad(loss, zero, retain_graph=True)
            size = slope.flatten(1).norm(dim=1).clamp_min(1e-12)[:, None, None, None]
            loss = loss + loss_with(3.0 * slope / size)
        return loss, []

    fit(model, loss_at, recipe)
    return model.eval()


@claim("Attention Meets Perturbations")
def perturbed_attention() -> Numbers:
    """Train with and without adversarial changes of attention scores, from the same seeds."""
    closer, better = [], []
    said = hiding_sentences(50_000, 256)
    ids, length, _, right = tensors(said)
    for seed in range(6):
        alike, losses = [], []
        for adversarial in (False, True):
            with own_torch(seed, 1):
                module = classifier(seed, adversarial)
                logits = answered(module, ids, length).detach()
            losses.append(float(F.cross_entropy(logits, right)))
            model = interp.load(
                module, tokenizer=train_deceive.build_tokenizer(64), name=f"seed {seed}"
            )
            ranks = []
            for s in said[:40]:
                target = f"token:{s.right}|{s.wrong}"
                methods = ("mean_attention", "gradient_norm")
                both = [interp.attribute(model, s.text, m, target).scores for m in methods]
                ranks.append(float(spearman(np.abs(both))[0, 1]))
            alike.append(float(np.mean(ranks)))
        closer.append(alike[1] - alike[0])
        better.append(losses[1] - losses[0])
    return closer, better
