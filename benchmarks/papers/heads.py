"""Claims of papers on what single heads do: alone, together, and in graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import counting
import numpy as np
import torch
from torch import nn

import interp
from benchmarks.paper_findings import Finding
from interp import causal, syntax
from interp.core.resources import folder
from interp.heads.checkpoints.rises import half_rise
from interp.model.edits import zero
from interp.text.graphs import graph_of, over_layers, static_layers
from papers.beside import SOFTMAX
from papers.finding import claim, mean
from training import alike
from training.graphs import GraphAttention, GraphTransformer
from training.text import paragraphs
from training.train_retrieval import (
    HELD_OUT,
    Recipe,
    chain_mass,
    retrieval_checkpoints,
    retrieval_measured,
)


@claim(
    "Attention heads in counting",
    "one layer of four heads that says which of two symbols is more frequent, 3 seeds",
)
def counting_heads() -> list[Finding]:
    """Each head alone, their average, and learned weights, on held-out strings."""
    alone, gain = [], []
    for seed in range(3):
        found = counting.measured(counting.trained(seed, 400), seed)
        single = [v[0] for k, v in found.items() if k.startswith("L") and k.endswith("alone")]
        alone.append(min(single))
        gain.append(found["learned weights"][0] - found["uniform average"][0])
    return [
        mean("accuracy of the weakest head alone", alone, "share", "above", 0.9, "3 seeds"),
        mean(
            "accuracy with learned weights of heads minus with equal ones",
            gain,
            "share",
            "above",
            0,
            "3 seeds",
        ),
    ]


@claim("The retrieval problem", "attention-only models that follow chains of four links, 3 seeds")
def retrieval() -> list[Finding]:
    """Train one and three layers, with and without the answers at smaller depths."""
    last: dict[str, list[float]] = {"deep": [], "bare": [], "flat": []}
    order = []
    plain = Recipe(layers=3, steps=600, every=25)
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
    return [
        mean(
            "accuracy at four links of three layers minus one",
            (deep - last["flat"]).tolist(),
            "share",
            "above",
            0.3,
            "3 seeds",
        ),
        mean(
            "accuracy of three layers with the answers at smaller depths minus without",
            (deep - last["bare"]).tolist(),
            "share",
            "above",
            0.3,
            "3 seeds",
        ),
        mean(
            "half of the rise of attention to the item two links back, steps after that to the"
            " item one back",
            order,
            "steps",
            "above",
            0,
            "3 seeds",
        ),
    ]


@claim("Do attention heads in BERT track", "all-MiniLM-L6-v2 on data/treebank.conllu")
def syntactic_heads() -> list[Finding]:
    """Heads chosen on one half of the sentences, judged on the other beside fixed offsets."""
    from papers.attribution import minilm

    bank = syntax.read_conllu(folder("data") / "treebank.conllu")
    found = syntax.dependency_trees(minilm(), bank, controls=False)
    frequent = [r for r in found.relations if r.n >= 15]
    tree, *trivial = (
        next(t for t in found.trees if not t.punct and t.method.startswith(name))
        for name in ("maximum spanning tree", "left-branching", "right-branching")
    )
    low, high = tree.uuas_interval
    base = max(t.uuas for t in trivial)
    return [
        mean(
            "dependents whose head word the best head finds, minus with the best fixed offset",
            [r.gain for r in frequent],
            "share",
            "above",
            0,
            f"{len(frequent)} relations with 15 dependents or more",
        ),
        Finding(
            "edges of trees from the best single head, minus the better of left- and"
            " right-branching trees",
            tree.uuas - base,
            low - base,
            high - base,
            "share of edges",
            "below",
            0.05,
            f"{found.counts['test_sentences']} sentences",
        ),
    ]


def answers(model: interp.Model, ids: Any, without: Any = ()) -> float:
    """Return the share of next tokens that a model without some heads names right."""
    logits = model.run(ids, edits=[zero(without)] if without else [])
    wanted = torch.tensor(ids)[:, 1:]
    return float((logits[:, :-1].argmax(-1).cpu() == wanted).float().mean())


@claim(
    "Are Sixteen Heads",
    "softmax heads trained alike, 3 seeds; bundled:induction and one-layer; text",
)
def sixteen_heads() -> list[Finding]:
    """Without a quarter of the heads, and with one head in a layer; chosen on other texts."""
    without, single = [], []
    models = [
        (alike.loaded(SOFTMAX, s), alike.asked_rows(SOFTMAX, "text", 64).given.tolist())
        for s in alike.SEEDS
    ]
    for name in ("induction", "one-layer"):
        model = interp.load(f"bundled:{name}")
        models.append((model, [model.tokenizer(p)["input_ids"][:32] for p in paragraphs(64, 3)]))  # type: ignore[misc]
    for model, ids in models:
        chosen, judged = causal.loss(model, ids[:32]), ids[32:]
        own = answers(model, judged)
        order = causal.michel(model, chosen, form="token_abs", null="none").to_pandas()
        least = order.sort_values("score")[: len(order) // 4]
        heads = list(zip(least.layer, least["head"], strict=True))
        without.append(own - answers(model, judged, heads))
        alone = causal.all_but_one(model, chosen, null="none").to_pandas()
        best = alone.loc[alone.score.idxmin()]
        others = [(best.layer, h) for h in range(model.n_heads) if h != best["head"]]
        single.append(own - answers(model, judged, others))
    return [
        mean(what, values, "share of tokens", "below", 0.02, "5 models, 32 texts each")
        for what, values in (
            ("accuracy lost without the quarter of heads of least importance", without),
            ("accuracy lost with one head left in the layer that bears it best", single),
        )
    ]


@claim("TensorLLM", "bundled:induction: repeated random tokens, and text")
def shared_directions() -> list[Finding]:
    """Cut all heads of a layer to shared directions; the share is chosen on other prompts."""
    model, found = interp.load("bundled:induction"), []
    for name, task in (
        ("copies of random tokens", interp.repeats_task(model, n=64)),
        ("text", causal.loss(model, [" ".join(p.split()[:20]) for p in paragraphs(64, 3)])),
    ):
        rows = causal.tucker_loss(model, task, shares=(0.95, 0.9, 0.75, 0.5))
        change = np.asarray(rows.per_prompt)
        best = int(change[:, :32].mean(1).argmin())
        half = rows.to_pandas().iloc[-1]
        found += [
            mean(
                f"rise of the loss on {name} at the best share of directions",
                change[best, 32:].tolist(),
                "nats",
                "below",
                0,
                "32 prompts",
            ),
            mean(
                f"rise of the loss on {name} with half of the directions, minus with as many"
                " random ones",
                (change[-1] - half["null"]).tolist(),
                "nats",
                "below",
                0,
                "64 prompts",
            ),
        ]
    return found


@claim("A Multiscale Visualization of Attention", "bundled:induction")
def views() -> Finding:
    """Find the head on the token before in the view of one text, and ablate it on other prompts.

    The second layer's heads all look for repeats, so that none of them stands out.
    """
    model = interp.load("bundled:induction")
    shown = interp.view(model, paragraphs(1, 3)[0]).stacks[0].weights
    seen = {h: float(np.diagonal(np.asarray(w), -1).mean()) for h, w in shown.items()}
    best = max(seen, key=lambda h: seen[h])
    task = interp.repeats_task(model, n=32, seed=6)
    found = causal.leave_one_out(model, task, null="none")
    values, frame = np.asarray(found.per_prompt), found.to_pandas().reset_index(drop=True)
    layer = frame.index[frame.layer == best.layer]
    own = layer[frame["head"][layer] == best.head]
    others = values[layer.difference(own)].mean(0)
    return mean(
        "rise of the loss on repeats without the head that the view shows on the token"
        " before, minus without another of its layer",
        (values[own][0] - others).tolist(),
        "nats",
        "above",
        0,
        "32 prompts",
    )


def lookup_graph(rng: np.random.Generator, keys: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features of nodes with a key and a value and of nodes with a key alone, and values."""
    values = torch.from_numpy(rng.permutation(keys))
    eye = torch.eye(keys)
    known = torch.cat([eye, eye[values]], 1)
    return torch.cat([known, torch.cat([eye, torch.zeros(keys, keys)], 1)]), values


def looked_up(kind: Any, seed: int, keys: int = 6) -> tuple[float, float]:
    """Train a layer to give each asking node the value of its key: accuracy, and static score."""
    torch.manual_seed(seed)
    layer, out = GraphAttention(2 * keys, 16, kind=kind, seed=seed), nn.Linear(16, keys)
    adam = torch.optim.Adam([*layer.parameters(), *out.parameters()], lr=1e-2)
    rng, seen = np.random.default_rng(seed), torch.zeros(2 * keys, 2 * keys, dtype=torch.bool)
    seen[keys:, :keys] = True
    for _ in range(1500):
        x, values = lookup_graph(rng, keys)
        loss = nn.functional.cross_entropy(out(layer(x, seen)[0][keys:]), values)
        adam.zero_grad()
        loss.backward()
        adam.step()
    right = []
    with torch.no_grad():
        for _ in range(100):
            x, values = lookup_graph(rng, keys)
            said = out(layer(x, seen)[0][keys:]).argmax(-1)
            right.append(float((said == values).float().mean()))
        static = static_layers([layer.scores(x).numpy()], seen.numpy()).to_pandas().score.mean()
    return float(np.mean(right)), float(static)


@claim(
    "How Attentive are Graph Attention",
    "one trained layer of GAT and of GATv2 that looks values up by key, 3 seeds",
)
def dynamic_attention() -> list[Finding]:
    """Train both layers to look six keys up, and correlate the rankings of their queries."""
    pairs = [(looked_up("gat", s), looked_up("gatv2", s)) for s in range(3)]
    return [
        mean(
            "accuracy of GATv2 minus GAT",
            [b[0] - a[0] for a, b in pairs],
            "share",
            "above",
            0.3,
            "3 seeds, 100 graphs each",
        ),
        mean(
            "rank correlation of two queries' scores, GAT",
            [a[1] for a, _ in pairs],
            "rank correlation",
            "above",
            0.999,
            "3 seeds",
        ),
        mean(
            "rank correlation of two queries' scores, GATv2",
            [b[1] for _, b in pairs],
            "rank correlation",
            "below",
            0.5,
            "3 seeds",
        ),
    ]


def communities(rng: np.random.Generator, n: int = 24) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Return features with the class in noise and eigenvectors of the graph, classes and edges."""
    classes = rng.integers(3, size=n)
    chance = np.where(classes[:, None] == classes, 0.35, 0.05)
    edges = np.triu(rng.random((n, n)) < chance, 1)
    edges = edges | edges.T
    laplacian = np.diag(edges.sum(1)) - edges.astype(float)
    places = np.linalg.eigh(laplacian)[1][:, 1:6] * n**0.5
    x = np.concatenate([np.eye(3)[classes] + rng.standard_normal((n, 3)), places], 1)
    return torch.from_numpy(x).float(), torch.from_numpy(classes), edges


@claim(
    "Attention Graphs",
    "two-layer graph transformers trained to name the community of nodes, 3 seeds",
)
def attention_graphs() -> list[Finding]:
    """Train with attention between all nodes, and compare what it carries with the graph."""
    alike_edges, right = [], []
    for seed in range(3):
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        model, out = GraphTransformer(8, sparse=False, seed=seed), nn.Linear(8, 3)
        adam = torch.optim.Adam([*model.parameters(), *out.parameters()], lr=3e-3)
        for _ in range(1500):
            x, classes, edges = communities(rng)
            loss = nn.functional.cross_entropy(out(model(x, torch.from_numpy(edges))[0]), classes)
            adam.zero_grad()
            loss.backward()
            adam.step()
        scores, hits = [], []
        with torch.no_grad():
            for _ in range(20):
                x, classes, edges = communities(rng)
                written, patterns = model(x, torch.from_numpy(edges))
                graph = graph_of(over_layers([p.numpy() for p in patterns]))
                scores.append(graph.against(edges, n_random=1)["auroc"])
                hits.append(float((out(written).argmax(-1) == classes).float().mean()))
        alike_edges.append(float(np.mean(scores)))
        right.append(float(np.mean(hits)))
    return [
        mean(
            "area under the curve of attention between all nodes for edges of the graph (chance"
            " 0.5)",
            alike_edges,
            "share",
            "below",
            0.6,
            "3 seeds, 20 graphs each",
        ),
        mean(
            "accuracy of the community (chance 0.33)",
            right,
            "share",
            "above",
            0.6,
            "3 seeds, 20 graphs each",
        ),
    ]
