"""Claims of papers on what single heads do: alone, together, and in graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
from papers.finding import above, below, claim, on_decoders
from papers.fitting import step_down
from papers.hosts import Host
from training.graphs import GraphAttention, GraphTransformer
from training.train_retrieval import (
    HELD_OUT,
    Recipe,
    chain_mass,
    retrieval_checkpoints,
    retrieval_measured,
)


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
        above(
            "accuracy at four links of three layers minus one",
            deep - last["flat"],
            "3 seeds",
            0.3,
            "share",
        ),
        above(
            "accuracy of three layers with the answers at smaller depths minus without",
            deep - last["bare"],
            "3 seeds",
            0.3,
            "share",
        ),
        above(
            "half of the rise of attention to the item two links back, steps after that to the"
            " item one back",
            order,
            "3 seeds",
            unit="steps",
        ),
    ]


@claim("Do attention heads in BERT track", kind="encoder of text")
def syntactic_heads(host: Host) -> list[Finding]:
    """Heads chosen on one half of the sentences, judged on the other beside fixed offsets."""
    bank = syntax.read_conllu(folder("data") / "treebank.conllu")
    found = syntax.dependency_trees(host.model, bank, controls=False)
    frequent = [r for r in found.relations if r.n >= 15]
    tree, *trivial = (
        next(t for t in found.trees if not t.punct and t.method.startswith(name))
        for name in ("maximum spanning tree", "left-branching", "right-branching")
    )
    low, high = tree.uuas_interval
    base = max(t.uuas for t in trivial)
    return [
        above(
            "dependents whose head word the best head finds, minus with the best fixed offset",
            [r.gain for r in frequent],
            f"{len(frequent)} relations with 15 dependents or more",
            unit="share",
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


@on_decoders("Are Sixteen Heads", layers=4)
def sixteen_heads(host: Host) -> list[Finding]:
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
    return [
        below(f"accuracy lost {what}", own - left, "64 texts", 0.02, "share of tokens")
        for what, left in (
            ("without the quarter of heads of least importance", quarter),
            ("with one head left in the layer that bears it best", single),
        )
    ]


@on_decoders("TensorLLM")
def shared_directions(host: Host) -> list[Finding]:
    """Cut all heads of a layer to shared directions; the share is chosen on other prompts."""
    model, found = host.model, []
    for name, task in (
        ("copies of random tokens", interp.repeats_task(model, n=64)),
        ("text", causal.loss(model, [row[:32] for row in host.texts(64)])),
    ):
        rows = causal.tucker_loss(model, task, shares=(0.95, 0.9, 0.75, 0.5))
        change = np.asarray(rows.per_prompt)
        best = int(change[:, :32].mean(1).argmin())
        half = rows.to_pandas().iloc[-1]
        what, others = f"rise of the loss on {name}", change[-1] - half["null"]
        found += [
            below(f"{what} at the best share of directions", change[best, 32:], "32 prompts"),
            below(f"{what}, half of the directions minus as many random", others, "64 prompts"),
        ]
    return found


@on_decoders("A Multiscale Visualization of Attention")
def views(host: Host) -> Finding:
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
    return above(
        "rise of the loss on repeats without the head that the view shows on the token"
        " before, minus without another of its layer",
        values[own][0] - others,
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
        step_down(adam, loss)
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
        above(
            "accuracy of GATv2 minus GAT",
            [b[0] - a[0] for a, b in pairs],
            "3 seeds, 100 graphs each",
            0.3,
            "share",
        ),
        above(
            "rank correlation of two queries' scores, GAT",
            [a[1] for a, _ in pairs],
            "3 seeds",
            0.999,
            "rank correlation",
        ),
        below(
            "rank correlation of two queries' scores, GATv2",
            [b[1] for _, b in pairs],
            "3 seeds",
            0.5,
            "rank correlation",
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
            step_down(adam, loss)
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
        below(
            "area under the curve of attention between all nodes for edges of the graph (chance"
            " 0.5)",
            alike_edges,
            "3 seeds, 20 graphs each",
            0.6,
            "share",
        ),
        above(
            "accuracy of the community (chance 0.33)",
            right,
            "3 seeds, 20 graphs each",
            0.6,
            "share",
        ),
    ]
