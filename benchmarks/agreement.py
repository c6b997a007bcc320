"""Compare interp's numbers with independent computations of the same quantities.

    python benchmarks/agreement.py

Each row computes one kind of number twice: by the public call that a user types, and by code in
this file that shares nothing with the package (plain transformers forwards, dense float64 numpy,
networkx, brute-force enumeration). It reports the largest absolute difference over all cases, in
the unit of the number, and the number of values compared. Models are tiny and random, with
sharpened attention, so that a wrong head, row or position would show as a difference of 0.1 to 1.
Writes benchmarks/agreement.md and .json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))  # the tiny models of every architecture

import zoo  # noqa: E402
from agreement_definitions import by_definition, losses_without  # noqa: E402 - beside this file

import interp  # noqa: E402
from interp.core.prompts import Prompts  # noqa: E402

ENGINES = ("stored", "streamed", "fused")
LENGTHS = (1, 2, 5, 9, 14, 20)


@dataclass(frozen=True)
class Row:
    """One comparison: the largest absolute difference over `values` numbers of `cases` cases."""

    what: str
    against: str
    unit: str
    cases: int
    values: int
    largest: float
    spread: float
    """Standard deviation of the compared numbers: the scale on which to read the difference."""


class Differences:
    """Collects pairs of numbers and keeps the largest difference and their spread."""

    def __init__(self) -> None:
        self.cases, self.ours, self.theirs = 0, [], []

    def add(self, ours: Any, theirs: Any) -> None:
        """Add one case; NaN on both sides counts as equal, on one side as a failure."""
        a, b = (np.asarray(x, dtype=np.float64).ravel() for x in (ours, theirs))
        if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
            raise AssertionError(f"the two sides do not match: {a} and {b}")
        self.cases += 1
        self.ours.append(a[~np.isnan(a)])
        self.theirs.append(b[~np.isnan(b)])

    def row(self, what: str, against: str, unit: str) -> Row:
        """The comparison as a row of the table."""
        a, b = np.concatenate(self.ours), np.concatenate(self.theirs)
        largest, spread = float(np.abs(a - b).max()), float(b.std())
        return Row(what, against, unit, self.cases, a.size, largest, spread)


ATTENTION = (
    "induction",
    "duplicate_token",
    "previous_token",
    "current_token",
    "first_token",
    "local_window",
    "recency",
    "streaming",
    "entropy",
    "attention_distance",
    "largest_weight",
)


def ragged(vocabulary: int, seed: int = 0) -> list[list[int]]:
    """Prompts of several lengths in which tokens repeat."""
    rng = np.random.default_rng(seed)
    return [rng.integers(8, min(vocabulary, 14), n).tolist() for n in LENGTHS]


def eager_patterns(module: Any, ids: list[int]) -> list[np.ndarray]:
    """The model's own attentions of one unpadded prompt, [head, query, key] per layer, float64."""
    with torch.no_grad():
        out = module(input_ids=torch.tensor([ids]), output_attentions=True)
    return [a[0].double().numpy() for a in out.attentions]


def families() -> Iterator[zoo.Family]:
    """Text models that return the softmax pattern of every layer."""
    for family in zoo.FAMILIES.values():
        plain = family.kind == "text" and "refused" not in family.features
        if plain and family.returned is None and family.sites and "causal" in family.features:
            yield family


def attention_metrics() -> Iterator[Row]:
    """Every attention metric through `interp.score`, per engine, against unbatched eager runs."""
    per_engine = {engine: Differences() for engine in ENGINES}
    for family in families():
        module = family.build("eager" if "sdpa" not in family.attentions else "sdpa")
        ids = ragged(int(family.config["vocab_size"]))
        twin = family.build("eager")
        twin.load_state_dict(module.state_dict())
        theirs = [eager_patterns(twin, p) for p in ids]
        model = interp.load(module, name=family.name)
        for engine, side in itertools.product(ENGINES, ("right", "left")):
            if side not in family.paddings:
                continue
            prompts = Prompts(tuple(map(tuple, ids)), padding=side)
            try:
                table = interp.score(
                    model, ATTENTION, prompts, null="none", engine=engine, batch_size=4
                )
            except interp.InterpError as error:
                print(f"  left out: {family.name}, {engine}: {error}", file=sys.stderr)
                continue
            for metric in ATTENTION:
                ours = table.matrix(metric)
                want = np.full(ours.shape, np.nan)
                for at, (_, layer) in enumerate(family.sites):
                    for head in range(theirs[0][at].shape[0]):
                        each = [
                            by_definition(metric, p[at][head], x)
                            for p, x in zip(theirs, ids, strict=True)
                        ]
                        want[layer, head] = np.nanmean(each)
                per_engine[engine].add(ours, want)
    for engine, differences in per_engine.items():
        yield differences.row(
            f"attention metrics, engine {engine}, both paddings, lengths 1 to {max(LENGTHS)}",
            "one unpadded eager forward per prompt; definitions in plain Python",
            "each metric's own",
        )


def weights_metrics() -> Iterator[Row]:
    """Sizes and eigenvalues of circuits of a Llama against dense float64 matrices."""
    family = zoo.FAMILIES["llama"]
    module = family.build("sdpa")
    table = interp.score(
        interp.load(module, name="llama"), ["ov_norm", "qk_norm", "ov_copying"], null="none"
    )
    found = {name: Differences() for name in ("ov_norm", "qk_norm", "ov_copying")}
    config = module.config
    d = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    group = config.num_attention_heads // config.num_key_value_heads
    embed = module.model.embed_tokens.weight.detach().double().numpy()
    gain = module.model.norm.weight.detach().double().numpy()
    unembed = module.lm_head.weight.detach().double().numpy() * gain
    unembed = unembed - unembed.mean(0)  # a softmax does not see the mean over the vocabulary
    for at, layer in enumerate(module.model.layers):
        norm = layer.input_layernorm.weight.detach().double().numpy()
        q, k, v, o = (
            getattr(layer.self_attn, f"{x}_proj").weight.detach().double().numpy() for x in "qkvo"
        )
        for h in range(config.num_attention_heads):
            mine, shared = slice(h * d, (h + 1) * d), slice(h // group * d, (h // group + 1) * d)
            ov = o[:, mine] @ (v[shared] * norm)
            qk = (q[mine] * norm).T @ (k[shared] * norm) / np.sqrt(d)
            values = np.linalg.eigvals(unembed @ ov @ embed.T)
            dense = {
                "ov_norm": np.linalg.norm(ov),
                "qk_norm": np.linalg.norm(qk),
                "ov_copying": values.real.sum() / np.abs(values).sum(),
            }
            for name, value in dense.items():
                found[name].add(table.matrix(name)[at, h], value)
    for name, differences in found.items():
        unit = table.where(metric=name).to_pandas()["unit"].iloc[0]
        yield differences.row(f"{name} of a Llama", "dense float64 matrices of every head", unit)


def rollout_of_patterns() -> Iterator[Row]:
    """Attention rollout against the product of dense matrices."""
    from interp.attribution import attribute

    found = Differences()
    for name in ("llama", "gpt2", "gpt_neox"):
        family = zoo.FAMILIES[name]
        module = family.build("eager")
        for ids in ragged(int(family.config["vocab_size"]))[2:]:
            joint = np.eye(len(ids))
            for pattern in eager_patterns(module, ids):
                joint = (0.5 * pattern.mean(0) + 0.5 * np.eye(len(ids))) @ joint
            result = attribute(interp.load(module, name=name), [ids], "rollout")
            found.add(result.scores, joint[-1])
    yield found.row("rollout", "the product of dense matrices", "share of the output")


def trees() -> Iterator[Row]:
    """Spanning trees of random score matrices against networkx: the difference of total scores."""
    from interp.syntax.spanning import arborescence, prim

    rng = np.random.default_rng(0)
    undirected, directed = Differences(), Differences()
    for n in (2, 3, 5, 8, 13):
        for _ in range(20):
            score = rng.normal(size=(n, n)).round(1)  # rounded, so that ties occur
            graph = nx.Graph()
            graph.add_weighted_edges_from(
                (i, j, max(score[i, j], score[j, i])) for i in range(n) for j in range(i)
            )
            best = nx.maximum_spanning_tree(graph).size("weight")
            tree = prim(score)
            ours = sum(max(score[d, h], score[h, d]) for d, h in enumerate(tree) if h >= 0)
            undirected.add(ours, best)
            root = int(rng.integers(n))
            arrows = nx.DiGraph()
            arrows.add_weighted_edges_from(
                (h, d, score[d, h]) for d in range(n) for h in range(n) if d not in (h, root)
            )
            best = nx.maximum_spanning_arborescence(arrows, preserve_attrs=False).size("weight")
            heads = arborescence(score, root)
            directed.add(sum(score[d, h] for d, h in enumerate(heads) if h >= 0), best)
    yield undirected.row("undirected dependency trees", "networkx, total score", "score")
    yield directed.row("directed dependency trees", "networkx, total score", "score")


def kernels() -> Iterator[Row]:
    """Streamed statistics and outputs against float64 softmax, beside PyTorch's own output."""
    from interp_kernels import (
        Attention,
        Entropy,
        Largest,
        Output,
        Received,
        attention_statistics,
    )

    names = {"output": Output, "entropy": Entropy, "largest": Largest, "received": Received}
    found = {(b, n): Differences() for b in ("chunked", "cpu") for n in names}
    plain = Differences()
    for n, spread in itertools.product((7, 64, 1000), (1.0, 3.0)):
        draw = torch.Generator().manual_seed(n)
        q, k, v = (spread * torch.randn(1, 4, n, 32, generator=draw) for _ in range(3))
        a, b, c = (x[0].double().numpy() for x in (q, k, v))
        score = a @ b.transpose(0, 2, 1) / np.sqrt(32)
        score[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        p = np.exp(score - score.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.nansum(np.where(p > 0, p * np.log(p), 0), -1)
        dense = {
            "output": p @ c,
            "entropy": entropy,
            "largest": p.max(-1),
            "received": p.sum(1),
        }
        sdpa = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        plain.add(sdpa[0].numpy(), dense["output"])
        call = Attention(q=q, k=k, v=v, causal=True)
        for backend in ("chunked", "cpu"):
            got = attention_statistics(call, [make() for make in names.values()], backend=backend)
            for name, make in names.items():
                found[backend, name].add(got[make().name][0].numpy(), dense[name])
    yield plain.row("PyTorch's own attention output in float32", "float64 softmax", "value")
    units = {
        "output": "value",
        "entropy": "nats",
        "largest": "attention weight",
        "received": "attention mass",
    }
    for (backend, name), differences in found.items():
        yield differences.row(f"kernels, {backend}: {name}", "float64 softmax", units[name])


def small_llama() -> Any:
    """A random Llama of 2 layers of 3 heads, so that all 64 sets of heads can be tried."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=40,
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=3,
            max_position_embeddings=64,
            initializer_range=0.3,
        )
        return LlamaForCausalLM(config).eval()


def causal() -> Iterator[Row]:
    """Ablation, Shapley and Banzhaf values against hooks and all sets of heads."""
    from interp.causal import banzhaf, leave_one_out, loss, shapley

    module = small_llama()
    ids = torch.randint(0, 40, (6, 12), generator=torch.Generator().manual_seed(1))
    heads = [(at, h) for at in range(2) for h in range(3)]
    sets = [frozenset(c) for n in range(7) for c in itertools.combinations(heads, n)]
    without = {closed: losses_without(module, ids, set(closed)).mean() for closed in sets}
    n = len(heads)
    alone, fair, half = (np.zeros((2, 3)) for _ in range(3))
    for at, h in heads:
        alone[at, h] = without[frozenset({(at, h)})] - without[frozenset()]
        for closed in sets:
            if (at, h) in closed:
                continue
            # how much worse it gets when this head goes too
            worse = without[closed | {(at, h)}] - without[closed]
            size = len(closed)
            fair[at, h] += worse * math.factorial(size) * math.factorial(n - size - 1)
            half[at, h] += worse / 2 ** (n - 1)
    fair /= math.factorial(n)
    model = interp.load(module, name="small")
    task = loss(model, Prompts(tuple(map(tuple, ids.tolist()))))
    for what, found, want in (
        ("ablation of one head", leave_one_out(model, task), alone),
        ("Shapley values", shapley(model, task, method="exact"), fair),
        ("Banzhaf values", banzhaf(model, task), half),
    ):
        differences = Differences()
        table = found.table
        differences.add(table.matrix(table.metrics[0]), want)
        against = "hooks on the projection" + (
            "" if "one" in what else f", all {len(sets)} sets of heads"
        )
        yield differences.row(f"{what}, change of the loss", against, "nats/token")


COMPARISONS = (attention_metrics, weights_metrics, rollout_of_patterns, kernels, causal, trees)


def report(rows: list[Row], about: dict[str, Any]) -> str:
    """The page."""
    out = [
        "# Agreement with independent computations",
        "",
        "Largest absolute difference between a number of interp and the same number computed by "
        "code that shares nothing with it, on tiny random models with sharpened attention. "
        "*Spread* is the standard deviation of the compared numbers: the scale on which to read "
        "the difference. "
        f"{', '.join(f'{k} {v}' for k, v in about.items())}. Made by `benchmarks/agreement.py`.",
        "",
        "| number | compared with | cases | values | largest difference | spread | unit |",
        "|---|---|---|---|---|---|---|",
    ]
    out += [
        f"| {r.what} | {r.against} | {r.cases:,} | {r.values:,} | {r.largest:.1e} | "
        f"{r.spread:.2g} | {r.unit} |"
        for r in rows
    ]
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import transformers

    rows: list[Row] = []
    for comparison in COMPARISONS:
        began = time.process_time()
        found = list(comparison())
        rows += found
        for row in found:
            print(f"{row.what}: {row.largest:.1e} over {row.values:,} values", flush=True)
        print(f"  ({time.process_time() - began:.0f} s of processor time)", flush=True)
    about = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "machine": platform.machine(),
    }
    kept = {"about": about, "rows": [asdict(row) for row in rows]}
    (given.out / "agreement.json").write_text(json.dumps(kept, indent=1) + "\n")
    (given.out / "agreement.md").write_text(report(rows, about))


if __name__ == "__main__":
    main()
