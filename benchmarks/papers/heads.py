"""Claims on what heads carry: alone, together, and in models of refusals, facts and word orders."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

import interp
from interp import alignment, causal, circuits, lens, safety, syntax
from interp.bundled.refusal_text import requests
from interp.bundled.reorder_text import reorder_pairs
from interp.circuits.facts import Fact
from interp.core.resources import folder
from interp.heads.checkpoints.rises import half_rise
from interp.model.edits import zero
from papers.finding import Interval, Numbers, Worded, claim, counted, on_decoders
from papers.hosts import Host
from training.train import own_torch
from training.train_refusal import NO, Recipe, build_tokenizer, encoded, trained_refusal
from training.train_retrieval import HELD_OUT, chain_mass, retrieval_checkpoints, retrieval_measured
from training.train_retrieval import Recipe as ToRetrieve
from training.word_model import fit, small_gpt2


@claim("The retrieval problem")
def retrieval() -> Numbers:
    """Train one and three layers, with and without the answers at smaller depths."""
    last: dict[str, list[float]] = {"deep": [], "bare": [], "flat": []}
    order = []
    plain = ToRetrieve(layers=3, steps=600, every=25)
    for seed in range(3):
        curves: list[list[float]] = []
        for name, recipe in (
            ("deep", plain),
            ("bare", replace(plain, curriculum=False, every=600)),
            ("flat", replace(plain, layers=1, every=600)),
        ):
            right = 0.0
            for _, module in retrieval_checkpoints(recipe, seed):
                right = retrieval_measured(module, recipe, heads=False)["accuracy"][4]
                if name == "deep":
                    made = causal.retrieval_problem(64, seed=HELD_OUT)
                    layers = chain_mass(interp.load(module, name="x"), made)
                    heads = [head for layer in layers for head in layer]
                    curves.append([max(h["links"][back] for h in heads) for back in (1, 2)])
            last[name].append(right)
        steps = [i * plain.every for i in range(len(curves))]
        first, second = (half_rise(steps, np.array(c)) for c in zip(*curves, strict=True))
        order.append(second - first)
    deep = np.array(last["deep"])
    return deep - last["flat"], deep - last["bare"], order


@claim("Do attention heads in BERT track", kind="encoder of text")
def syntactic_heads(host: Host) -> Numbers:
    """Heads chosen on one half of the sentences, judged on the other beside fixed offsets."""
    bank = syntax.read_conllu(folder("data") / "treebank.conllu")
    found = syntax.dependency_trees(host.model, bank, controls=False)
    tree, *trivial = (
        next(t for t in found.trees if not t.punct and t.method.startswith(name))
        for name in ("maximum spanning tree", "left-branching", "right-branching")
    )
    low, high = tree.uuas_interval
    base = max(t.uuas for t in trivial)
    edges = Worded(
        Interval(tree.uuas - base, low - base, high - base),
        {"samples": f"{found.counts['test_sentences']} sentences"},
    )
    gains = [r.gain for r in found.relations if r.n >= 15]
    return counted(gains, "relations with 15 dependents or more"), edges


def answers(model: interp.Model, ids: Any, without: Any = ()) -> float:
    """Return the share of next tokens that a model without some heads names right."""
    logits = model.run(ids, edits=[zero(without)] if without else [])
    wanted = torch.tensor(ids)[:, 1:]
    return float((logits[:, :-1].argmax(-1).cpu() == wanted).float().mean())


@on_decoders("Are Sixteen Heads", layers=4)
def sixteen_heads(host: Host) -> Numbers:
    """Without a quarter of the heads, and with one head in a layer; chosen on other texts."""
    model = host.model
    chosen, judged = causal.loss(model, host.texts(32, judged=False)), host.texts(64)
    order = causal.michel(model, chosen, form="token_abs", null="none").to_pandas()
    least = order.sort_values("score")[: len(order) // 4]
    heads = list(zip(least.layer, least["head"], strict=True))
    alone = causal.all_but_one(model, chosen, null="none").to_pandas()
    best = alone.loc[alone.score.idxmin()]
    others = [(best.layer, h) for h in range(model.n_heads) if h != best["head"]]
    own, quarter, single = (
        np.array([answers(model, [row], without) for row in judged])
        for without in ((), heads, others)
    )
    return own - quarter, own - single


@on_decoders("TensorLLM")
def shared_directions(host: Host) -> Numbers:
    """Cut all heads of a layer to shared directions; the share is chosen on other prompts."""
    model, texts = host.model, [row[:32] for row in host.texts(64)]
    for task in (interp.repeats_task(model, n=64), causal.loss(model, texts)):
        rows = causal.tucker_loss(model, task, shares=(0.95, 0.9, 0.75, 0.5))
        change = np.asarray(rows.per_prompt)
        best = int(change[:, :32].mean(1).argmin())
        yield change[best, 32:]
        yield change[-1] - rows.to_pandas().iloc[-1]["null"]


@on_decoders("A Multiscale Visualization of Attention")
def views(host: Host) -> Numbers:
    """Find the head on the token before in the view of one text, and ablate it on other prompts.

    In bundled:induction no head of the second layer stands out: all look for repeats.
    """
    model = host.model
    shown = interp.view(model, host.sentences(1)[0]).stacks[0].weights
    seen = {h: float(np.diagonal(np.asarray(w), -1).mean()) for h, w in shown.items()}
    best = max(seen, key=lambda h: seen[h])
    task = interp.repeats_task(model, n=32, seed=6)
    found = causal.leave_one_out(model, task, null="none")
    values, frame = np.asarray(found.per_prompt), found.to_pandas().reset_index(drop=True)
    layer = frame.index[frame.layer == best.layer]
    own = layer[frame["head"][layer] == best.head]
    others = values[layer.difference(own)].mean(0)
    return values[own][0] - others


@torch.no_grad()
def declined(module: Any, given: Any, heads: Any = ()) -> float:
    """Return the share of requests that a model declines without some heads."""
    ids, length, _ = map(torch.from_numpy, encoded(given))
    model = interp.load(module, name="refusal", tokenizer=build_tokenizer(64))
    said = []
    for row, n in zip(ids.tolist(), length.tolist(), strict=True):
        logits = model.run([row[:n]], edits=[zero(heads)] if heads else [])
        said.append(int(logits[0, -1].argmax()) == NO)
    return float(np.mean(said))


@claim("RDSHA / AHD")
def safety_heads() -> Numbers:
    """Leave out the four heads of largest projection on the refusal direction, or four others."""
    top, spread = [], []
    recipe = replace(Recipe(), steps=600)
    for seed in range(3):
        made = requests(80_000 + seed, 160)
        first, judged = made[:80], [r for r in made[80:] if r.harmful]
        found = {}
        for dropout in (0.0, 0.3):
            with own_torch(seed, 1):
                module = trained_refusal(recipe, seed, head_dropout=dropout)[0]
            model = interp.load(module, name="refusal", tokenizer=build_tokenizer(64))
            bad, good = ([r.text for r in first if r.harmful == x] for x in (True, False))
            table = safety.refusal_projection_scores(model, bad, good).to_pandas()
            order = table.sort_values("score", ascending=False)
            heads = list(zip(order.layer, order["head"], strict=True))
            others = np.random.default_rng(seed).permutation(len(heads) - 4)[:4] + 4
            picks = heads[:4], [heads[i] for i in others]
            found[dropout] = [declined(module, judged, pick) for pick in picks]
        top.append(found[0.0][0] - found[0.0][1])
        spread.append(found[0.3][0] - found[0.0][0])
    return top, spread


def knowing(seed: int) -> tuple[Any, list[Fact]]:
    """Train a small model on facts: two tokens of a subject, two of a relation, an object."""
    subjects, relations, objects = 40, 5, 30
    rng = np.random.default_rng(seed)
    names = rng.permutation(100)[: 2 * subjects].reshape(-1, 2) + 3
    asked = np.arange(2 * relations).reshape(-1, 2) + 103
    rows = [
        [0, *names[s].tolist(), *asked[r].tolist(), 113 + int(rng.integers(objects))]
        for s in range(subjects)
        for r in range(relations)
    ]
    with own_torch(seed, 1):
        model = small_gpt2(vocab=143, layers=5, d_model=48, heads=4, d_mlp=192, context=8)
        ids = torch.tensor(rows)
        recipe = replace(Recipe(), steps=400)

        def loss_at(step: int) -> tuple[torch.Tensor, list[float]]:
            return nn.functional.cross_entropy(model(ids[:, :5]).logits[:, -1], ids[:, 5]), []

        fit(model, loss_at, recipe)
    return model.eval(), [Fact(tuple(r[:5]), (1, 3), r[5]) for r in rows]


@claim("Does Knowledge Localization Hold True")
def relations_in_attention() -> Numbers:
    """Restore attention or MLPs after noise on the subject and on the relation."""
    part, more = [], []
    for seed in range(3):
        module, facts = knowing(seed)
        model = interp.load(module, name=f"facts {seed}")
        trace = partial(circuits.causal_tracing, model, facts[::4], n_samples=3, null=False)
        best = {
            (what, noise): float(trace(what, corrupt=noise).to_pandas().share.max())
            for noise in ("subject", "relation")
            for what in ("attention", "mlp")
        }
        part.append(best["attention", "relation"])
        relation, subject = (best["attention", x] - best["mlp", x] for x in ("relation", "subject"))
        more.append(relation - subject)
    return part, more


@claim("DecoderLens", kind="translator")
def decoder_lens(host: Host) -> Numbers:
    """Let the decoder read the first encoder layer: are the words right, and is their order?"""
    model = host.model
    words, rises = [], []
    for pair in reorder_pairs(90_000, 60):
        given = alignment.encode_pairs(model, [(" ".join(pair.source), " ".join(pair.target))])
        read = lens.decoder_lens(model, given.prompts).arrays["top_tokens"]
        own, n = set(pair.target), len(pair.target)
        known = [np.mean([w.strip() in own for w in row[:n]]) for row in read[1:]]
        pairs = [list(zip(row, pair.target, strict=False)) for row in read[1:]]
        right = [np.mean([w.strip() == t for w, t in row]) for row in pairs]
        words.append(float(known[0]))
        rises.append(float((known[-1] - known[0]) - (right[-1] - right[0])))
    return words, rises
