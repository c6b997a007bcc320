"""Claims of papers on circuits: constructions, tracing, and heads that carry a behaviour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import interp
from benchmarks.paper_findings import Finding
from interp import alignment, causal, circuits, lens, safety
from interp.bundled.refusal_text import requests
from interp.bundled.reorder_text import reorder_pairs
from interp.circuits.facts import Fact
from interp.circuits.tasks import make_contrast
from interp.core.rank_statistics import auroc
from interp.model.edits import zero
from interp.planted.neuron_heads import NeuronHeads, attention_only
from interp.planted.trained import TRAINED, trained_model
from interp.planted.trained.cases import CASES
from papers.beside import SOFTMAX
from papers.finding import claim, exact, mean
from training import forms
from training.batches import Corpus
from training.text import paragraphs
from training.train import own_torch
from training.train_refusal import NO, Recipe, build_tokenizer, encoded, trained_refusal
from training.word_model import fit, small_gpt2


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


@claim(
    "Attention-only transformers",
    "trained:brackets (GELU); a random GPT-2 with SiLU",
)
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
        mean(
            "divergence of the answer with neurons of GELU as heads, minus a hundredth of that"
            " without neurons",
            (np.array(apart) - np.array(without) / 100).tolist(),
            "nats",
            "below",
            0,
            "400 prompts",
        ),
    ]


def chains(rng: np.random.Generator, law: np.ndarray, number: int, lags: int = 3) -> np.ndarray:
    """Return rows of BOS and interleaved Markov chains, a lag from 1 to `lags` for each row."""
    states, length = len(law), 40
    lag = rng.integers(1, lags + 1, size=number)
    rows = np.zeros((number, 1 + length), dtype=np.int64)
    total = law.cumsum(1)
    for t in range(1, length + 1):
        before = rows[np.arange(number), np.maximum(t - lag, 0)] - 1
        drawn = (rng.random((number, 1)) > total[before]).sum(1).clip(max=states - 1)
        rows[:, t] = 1 + np.where(t > lag, drawn, rng.integers(states, size=number))
    return rows


@claim(
    "Selective induction heads",
    "planted construction; three-layer models trained on interleaved chains, 3 seeds",
)
def selective_heads() -> list[Finding]:
    """The construction by length, and the lag that heads of trained models attend to."""
    construction = interp.load("planted:selective_induction")
    table = interp.score(construction, "selective_induction", null="none")
    apart = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        law = rng.dirichlet(np.full(5, 0.3), size=5)
        torch.manual_seed(seed)
        model = small_gpt2(vocab=6, layers=3, d_model=64, heads=4, d_mlp=128, context=48).train()
        adam = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for _ in range(2500):  # fewer do not come near the entropy of the chains
            ids = torch.from_numpy(chains(rng, law, 24))
            loss = nn.functional.cross_entropy(model(ids).logits[:, 10:-1].mT, ids[:, 11:])
            adam.zero_grad()
            loss.backward()
            adam.step()
        model.config.transition_matrix = law.tolist()
        read = interp.load(model.eval(), name=f"chains {seed}")
        chosen, judged = (
            interp.score(read, "selective_induction", seed=s).to_pandas() for s in (1, 2)
        )
        at = int((chosen.score - chosen.null).idxmax())
        apart.append(float(judged.score[at] - judged.null[at]))
    best = table.to_pandas().sort_values("score").iloc[-1]
    return [
        exact(
            "attention of the constructed head to the token at the right lag",
            float(best.score),
            "attention mass",
            "above",
            0.9,
            "24 sequences",
        ),
        mean(
            "attention of the best head of trained models to the right lag minus a wrong one",
            apart,
            "attention mass",
            "above",
            0.2,
            "3 seeds, heads chosen on other sequences",
        ),
    ]


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


@claim("RDSHA / AHD", "models of training/train_refusal.py with and without head dropout, 3 seeds")
def safety_heads() -> list[Finding]:
    """Leave out the four heads of largest projection on the refusal direction, or four others."""
    lost: dict[str, list[float]] = {"top": [], "random": [], "spread": []}
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
            found[dropout] = (
                declined(module, judged, heads[:4]),
                declined(module, judged, [heads[i] for i in others]),
            )
        lost["top"].append(found[0.0][0] - found[0.0][1])
        lost["spread"].append(found[0.3][0] - found[0.0][0])
    return [
        mean(
            "harmful requests declined without the four heads of largest projection minus without"
            " four others",
            lost["top"],
            "share",
            "below",
            -0.2,
            "3 seeds, 40 requests each",
        ),
        mean(
            "harmful requests declined without these four heads, trained with head dropout minus"
            " without it",
            lost["spread"],
            "share",
            "above",
            0.2,
            "3 seeds, 40 requests each",
        ),
    ]


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
        torch.manual_seed(seed)
        model = small_gpt2(vocab=143, layers=5, d_model=48, heads=4, d_mlp=192, context=8)
        ids = torch.tensor(rows)
        recipe = replace(Recipe(), steps=400)

        def loss_at(step: int) -> tuple[torch.Tensor, list[float]]:
            return nn.functional.cross_entropy(model(ids[:, :5]).logits[:, -1], ids[:, 5]), []

        fit(model, loss_at, recipe)
    return model.eval(), [Fact(tuple(r[:5]), (1, 3), r[5]) for r in rows]


@claim("Does Knowledge Localization Hold True", "small models trained on 200 random facts, 3 seeds")
def relations_in_attention() -> list[Finding]:
    """Restore attention or MLPs after noise on the subject and on the relation."""
    shares: dict[str, list[float]] = {"subject": [], "relation": []}
    for seed in range(3):
        module, facts = knowing(seed)
        model = interp.load(module, name=f"facts {seed}")
        for noise in ("subject", "relation"):
            best = {
                what: float(
                    circuits.causal_tracing(
                        model, facts[::4], what, corrupt=noise, n_samples=3, null=False
                    )
                    .to_pandas()
                    .share.max()
                )
                for what in ("attention", "mlp")
            }
            shares[noise].append(best["attention"] - best["mlp"])
            if noise == "relation":
                shares.setdefault("part", []).append(best["attention"])
    return [
        mean(
            "largest share of the effect of noise on the relation that one layer's attention"
            " restores",
            shares["part"],
            "share",
            "above",
            0.3,
            "3 seeds, 50 facts each",
        ),
        mean(
            "share restored by attention minus by MLP: noise on the relation minus noise on the"
            " subject",
            np.subtract(shares["relation"], shares["subject"]).tolist(),
            "share",
            "above",
            0,
            "3 seeds, 50 facts each",
        ),
    ]


@claim("AttentionInfluence", "bundled:induction chooses, two-layer softmax models learn, 3 seeds")
def influence() -> Finding:
    """Train on the paragraphs that need the induction heads most, and on random ones."""
    chooser = interp.load("bundled:induction")
    texts, tokenizer = paragraphs(1200, 5), chooser.tokenizer
    heads = interp.score(chooser, "induction", null="none").to_pandas().nlargest(4, "score")
    named = list(zip(heads.layer, heads["head"], strict=True))
    found = causal.attention_influence(chooser, texts, named, n_random=0, max_length=64)
    order = found.to_pandas().relative.to_numpy().argsort()[::-1]
    held_out = Corpus(paragraphs(200, 6), tokenizer)  # type: ignore[arg-type]
    better = []
    for seed in range(3):
        losses = []
        for rows in (order[:300], np.random.default_rng(seed).permutation(1200)[:300]):
            corpus = Corpus([texts[i] for i in rows], tokenizer)  # type: ignore[arg-type]
            model = forms.build(
                SOFTMAX,
                seed=seed,
                gain=1.0,
                vocab_size=chooser.d_vocab,
                hidden_size=64,
                max_position_embeddings=64,
            ).train()
            adam, rng = torch.optim.AdamW(model.parameters(), lr=3e-3), np.random.default_rng(seed)
            for _ in range(300):
                ids = torch.from_numpy(corpus.rows(rng, 16, 48))
                loss = nn.functional.cross_entropy(model(ids).logits[:, :-1].mT, ids[:, 1:])
                adam.zero_grad()
                loss.backward()
                adam.step()
            ids = torch.from_numpy(held_out.rows(np.random.default_rng(0), 64, 48))
            with torch.no_grad():
                logits = model.eval()(ids).logits[:, :-1].mT
            losses.append(float(nn.functional.cross_entropy(logits, ids[:, 1:])))
        better.append(losses[0] - losses[1])
    return mean(
        "held-out loss after training on the chosen quarter of paragraphs minus on a random"
        " quarter",
        better,
        "nats per token",
        "below",
        0,
        "3 seeds",
    )


@claim("DecoderLens", "bundled:reorder, held-out pairs")
def decoder_lens() -> list[Finding]:
    """Let the decoder read the first encoder layer: are the words right, and is their order?"""
    model = interp.load("bundled:reorder")
    words, rises = [], []
    for pair in reorder_pairs(90_000, 60):
        given = alignment.encode_pairs(model, [(" ".join(pair.source), " ".join(pair.target))])
        read = lens.decoder_lens(model, given.prompts).arrays["top_tokens"]
        own, n = set(pair.target), len(pair.target)
        known = [np.mean([w.strip() in own for w in row[:n]]) for row in read[1:]]
        right = [
            np.mean([w.strip() == t for w, t in zip(row, pair.target, strict=False)])
            for row in read[1:]
        ]
        words.append(float(known[0]))
        rises.append(float((known[-1] - known[0]) - (right[-1] - right[0])))
    return [
        mean(
            "decoded words that translate some source word, first of two encoder layers",
            words,
            "share",
            "above",
            0.9,
            "60 pairs",
        ),
        mean(
            "rise to the last layer of the share of words that translate some source word, minus"
            " that of words in the right place",
            rises,
            "share",
            "below",
            0,
            "60 pairs",
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
        mean(
            "median number of singular vectors that carry a head's attention minus that of random"
            " vectors",
            fewer,
            "vectors",
            "below",
            0,
            samples,
        ),
        mean(
            "area under the curve of traced credit for the heads of the circuit (chance 0.5)",
            named,
            "share",
            "above",
            0.75,
            samples,
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
        mean(
            f"area under the curve for the circuit's heads, codes minus {words}",
            np.subtract(curves["codes"], curves[key]).tolist(),
            "share",
            "above",
            0,
            samples,
        )
        for words, key in (
            ("an untrained autoencoder's", "untrained"),
            ("attribution patching", "patching"),
        )
    ]
