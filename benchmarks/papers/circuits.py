"""Claims on heads in known circuits, and in graphs: neurons as heads, traces, dynamic attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import interp
from interp.circuits.tasks import make_contrast
from interp.core.rank_statistics import auroc
from interp.planted.neuron_heads import NeuronHeads, attention_only
from interp.planted.trained import TRAINED, trained_model
from interp.planted.trained.cases import CASES
from interp.text.graphs import graph_of, over_layers, static_layers
from papers.finding import Numbers, claim, counted
from papers.fitting import step_down
from training.graphs import GraphAttention, GraphTransformer
from training.train import own_torch


def divergence(module: Any, other: Any, rows: list[list[int]]) -> list[float]:
    """Return the divergence of the last predictions of two models, row by row, in nats."""
    found = []
    for row in torch.tensor(rows)[:, None]:
        with torch.no_grad():
            p, q = (m(row).logits[0, -1].double().log_softmax(-1) for m in (module, other))
        found.append(float((p.exp() * (p - q)).sum()))
    return found


def no_neurons(module: Any) -> Any:
    """Return a copy whose neuron heads write nothing."""
    bare = attention_only(module)
    for part in bare.modules():
        if isinstance(part, NeuronHeads):
            part.sharpness, part.out_proj = 1.0, Nothing(part.out_proj)
    return bare


class Nothing(nn.Module):
    """A projection that gives zeros."""

    def __init__(self, like: nn.Module):
        super().__init__()
        self.like = like

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(self.like(x))


@claim("Attention-only transformers")
def neurons_as_heads() -> Numbers:
    """Replace every neuron by a head of width 1, and compare what the models say."""
    module = trained_model("brackets")  # an MLP is part of its circuit
    rows = CASES["brackets"].draw(np.random.default_rng(0), 400).tolist()
    heads = attention_only(module)
    apart = divergence(module, heads, rows)
    without = divergence(module, no_neurons(module), rows)
    sizes: Any = {"vocab_size": 50, "n_embd": 32, "n_head": 4, "n_layer": 4}
    with own_torch(0, 1):
        config = GPT2Config(activation_function="silu", bos_token_id=0, eos_token_id=0, **sizes)
        silu = GPT2LMHeadModel(config).double().eval()
    ids = torch.arange(40)[None]
    with torch.no_grad():
        off = (silu(ids).logits - attention_only(silu)(ids).logits).abs().max()
    return float(off), np.array(apart) - np.array(without) / 100


OF_MODELS = f"tasks of {len(TRAINED)} models"


def tasks(n: int) -> Iterator[tuple[Any, Any]]:
    """Return every trained model with each of its tasks, whose circuit is known."""
    for name in TRAINED:
        model = interp.load(f"trained:{name}")
        for end in CASES[name].ends if len(CASES[name].ends) > 1 else ("",):
            yield model, make_contrast(model, f"trained:{name}" + f":{end}" * bool(end), n=n)


def named_right(found: Any, task: Any, scores: np.ndarray) -> float:
    """Return the area under the curve of the scores of nodes for the heads of the circuit."""
    heads = [i for i, node in enumerate(found.nodes) if node.startswith("L")]
    true = {node for nodes in task.truth.values() for node in nodes}
    labels = np.array([found.nodes[i] in true for i in heads])
    return float(auroc(scores[heads], labels))


@claim("Sparse Attention Decomposition")
def sparse_signals() -> Numbers:
    """Singular vectors that carry attention, beside random ones, and the heads they lead to."""
    fewer, named = [], []
    for model, task in tasks(16):
        found = interp.find_circuit(model, task, "svd_trace", "head", check=0)
        (control,) = found.tables["controls"]
        fewer.append(control["singular"] - control["random"])
        named.append(named_right(found, task, np.asarray(found.per_prompt).mean(1)))
    return counted(fewer, OF_MODELS), counted(named, OF_MODELS)


@claim("Sparse Autoencoders Enable Scalable")
def codes_of_heads() -> Numbers:
    """Rank heads by discrete codes, by codes of an untrained autoencoder, and by patching."""
    over_untrained, over_patching = [], []
    for model, task in tasks(100):
        found = interp.find_circuit(model, task, "codes", "head", repeats=1)
        rows = {r["ranking"]: r["auroc"] for r in found.tables["evaluation"]}
        other = interp.find_circuit(model, task, "attribution_patching", "head")
        patching = named_right(other, task, np.abs(np.asarray(other.per_prompt).mean(1)))
        over_untrained.append(rows["codes"] - rows["untrained"])
        over_patching.append(rows["codes"] - patching)
    return counted(over_untrained, OF_MODELS), counted(over_patching, OF_MODELS)


def lookup_graph(rng: np.random.Generator, keys: int) -> tuple[Tensor, Tensor]:
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
        step_down(adam, F.cross_entropy(out(layer(x, seen)[0][keys:]), values))
    right = []
    with torch.no_grad():
        for _ in range(100):
            x, values = lookup_graph(rng, keys)
            said = out(layer(x, seen)[0][keys:]).argmax(-1)
            right.append(float((said == values).float().mean()))
        static = static_layers([layer.scores(x).numpy()], seen.numpy()).to_pandas().score.mean()
    return float(np.mean(right)), float(static)


@claim("How Attentive are Graph Attention")
def dynamic_attention() -> Numbers:
    """Train both layers to look six keys up, and correlate the rankings of their queries."""
    pairs = [(looked_up("gat", s), looked_up("gatv2", s)) for s in range(3)]
    return [b[0] - a[0] for a, b in pairs], [a[1] for a, _ in pairs], [b[1] for _, b in pairs]


def communities(rng: np.random.Generator, n: int = 24) -> tuple[Tensor, Tensor, Any]:
    """Return features with the class in noise and eigenvectors of the graph, classes and edges."""
    classes = rng.integers(3, size=n)
    chance = np.where(classes[:, None] == classes, 0.35, 0.05)
    edges = np.triu(rng.random((n, n)) < chance, 1)
    edges = edges | edges.T
    laplacian = np.diag(edges.sum(1)) - edges.astype(float)
    places = np.linalg.eigh(laplacian)[1][:, 1:6] * n**0.5
    x = np.concatenate([np.eye(3)[classes] + rng.standard_normal((n, 3)), places], 1)
    return torch.from_numpy(x).float(), torch.from_numpy(classes), edges


@claim("Attention Graphs")
def attention_graphs() -> Numbers:
    """Train with attention between all nodes, and compare what it carries with the graph."""
    alike_edges, right = [], []
    for seed in range(3):
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        model, out = GraphTransformer(8, sparse=False, seed=seed), nn.Linear(8, 3)
        adam = torch.optim.Adam([*model.parameters(), *out.parameters()], lr=3e-3)
        for _ in range(1500):
            x, classes, edges = communities(rng)
            said = out(model(x, torch.from_numpy(edges))[0])
            step_down(adam, F.cross_entropy(said, classes))
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
    return alike_edges, right
