"""Claims on circuits: neurons as heads, and tracing what heads do in models with known circuits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import interp
from benchmarks.paper_findings import Finding
from interp.circuits.tasks import make_contrast
from interp.core.rank_statistics import auroc
from interp.planted.neuron_heads import NeuronHeads, attention_only
from interp.planted.trained import TRAINED, trained_model
from interp.planted.trained.cases import CASES
from papers.finding import above, below, claim, exact
from training.train import own_torch


def divergence(module: Any, other: Any, rows: list[list[int]]) -> list[float]:
    """Return the divergence of the last predictions of two models, row by row, in nats."""
    found = []
    for row in rows:
        with torch.no_grad():
            p, q = (
                m(torch.tensor([row])).logits[0, -1].double().log_softmax(-1)
                for m in (module, other)
            )
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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return zeros of the right width."""
        return torch.zeros_like(self.like(x))


@claim("Attention-only transformers", "trained:brackets (GELU); a random GPT-2 with SiLU")
def neurons_as_heads() -> list[Finding]:
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
    return [
        exact(
            "largest difference of logits, neurons of SiLU as heads, float64",
            float(off),
            "logits",
            "below",
            1e-9,
            "40 positions",
        ),
        below(
            "divergence of the answer with neurons of GELU as heads, minus a hundredth of that"
            " without neurons",
            np.array(apart) - np.array(without) / 100,
            "400 prompts",
        ),
    ]


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


@claim("Sparse Attention Decomposition", "the models trained:NAME, whose circuits are known")
def sparse_signals() -> list[Finding]:
    """Singular vectors that carry attention, beside random ones, and the heads they lead to."""
    fewer, named = [], []
    for model, task in tasks(16):
        found = interp.find_circuit(model, task, "svd_trace", "head", check=0)
        (control,) = found.tables["controls"]
        fewer.append(control["singular"] - control["random"])
        named.append(named_right(found, task, np.asarray(found.per_prompt).mean(1)))
    samples = f"{len(named)} tasks of {len(TRAINED)} models"
    return [
        below(
            "median number of singular vectors that carry a head's attention minus that of random"
            " vectors",
            fewer,
            samples,
            unit="vectors",
        ),
        above(
            "area under the curve of traced credit for the heads of the circuit (chance 0.5)",
            named,
            samples,
            0.75,
            "share",
        ),
    ]


@claim("Sparse Autoencoders Enable Scalable", "the models trained:NAME, whose circuits are known")
def codes_of_heads() -> list[Finding]:
    """Rank heads by discrete codes, by codes of an untrained autoencoder, and by patching."""
    curves: dict[str, list[float]] = {"codes": [], "untrained": [], "patching": []}
    for model, task in tasks(100):
        found = interp.find_circuit(model, task, "codes", "head", repeats=1)
        rows = {r["ranking"]: r["auroc"] for r in found.tables["evaluation"]}
        other = interp.find_circuit(model, task, "attribution_patching", "head")
        score = np.abs(np.asarray(other.per_prompt).mean(1))
        curves["codes"].append(rows["codes"])
        curves["untrained"].append(rows["untrained"])
        curves["patching"].append(named_right(other, task, score))
    samples = f"{len(curves['codes'])} tasks of {len(TRAINED)} models"
    return [
        above(
            f"area under the curve for the circuit's heads, codes minus {words}",
            np.subtract(curves["codes"], curves[key]),
            samples,
            unit="share",
        )
        for words, key in (
            ("an untrained autoencoder's", "untrained"),
            ("attribution patching", "patching"),
        )
    ]
