"""Query-key shares: error of the sum by family, ablations beside predictions, time and memory.

    python benchmarks/qk_shares.py [--models FOLDER] [--stories FILE.json]

Families: tiny randomly initialised models of the tests' zoo, all heads, three prompts of 12 tokens;
the largest difference of the sum of all terms from the model's own score, of the largest score.
Ablations: writers chosen on every second prompt are removed from one side of a head on the others
(`check_shares`). Models in FOLDER (toy induction models, story models) are skipped if it is not
given; FILE.json is a list of texts. Writes benchmarks/qk_shares.json and benchmarks/qk_shares.md.
"""

# ruff: noqa: E501 - rows of tables
from __future__ import annotations

import argparse
import json
import logging
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rounded import as_json

import interp
from interp.circuits import attribution_graph, check_shares, head_loadings, qk_shares
from interp.core.errors import InterpError
from interp.core.prompts import repeats
from interp.model.random_weights import random_init

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))


def families() -> list[dict[str, Any]]:
    """Errors of the sums of shares and of loadings for every family of the zoo."""
    from zoo import FAMILIES

    rows = []
    ids = torch.randint(4, 60, (3, 12), generator=torch.Generator().manual_seed(0)).tolist()
    for name, family in FAMILIES.items():
        row: dict[str, Any] = {"family": name}
        start = time.perf_counter()
        try:
            model = interp.load(family.model(family.attentions[0]))
            heads = [str(h) for h in model.heads()]
            row["error"] = max(qk_shares(model, heads, ids, null="none").errors.values())
            row["heads"] = len(heads)
        except InterpError as error:
            row["refused"] = str(error)
            rows.append(row)
            continue
        try:
            row["loadings_error"] = max(head_loadings(model, heads, ids).errors.values())
        except InterpError as error:
            row["loadings_refused"] = str(error)
        row["seconds"] = round(time.perf_counter() - start, 2)
        rows.append(row)
        print(row, flush=True)
    return rows


def cases(folder: Path | None, stories: Path | None) -> list[tuple[str, Any, Any, str, str]]:
    """Name, model, prompts, rule and what the prompts are."""
    model = interp.load("bundled:induction")
    random = "random tokens repeated twice"
    found = [("bundled:induction", model, repeats(model, n=32, seed=3), "induction", random)]
    if folder is None:
        return found
    sys.path.insert(0, str(folder))
    import toy_transformer  # noqa: F401
    from transformers import AutoModelForCausalLM

    for name in ("toy-induction-2l4h", "toy-induction-2l1h"):
        module = AutoModelForCausalLM.from_pretrained(folder / name)
        model = interp.load(module, name=name)
        longest = 3 if name.endswith("1h") else 20
        low, top = (0, 26) if name.endswith("1h") else (1, 256)
        generator = torch.Generator().manual_seed(0)
        prompts = []
        for _ in range(32):
            first = (torch.randperm(top - low, generator=generator)[:longest] + low).tolist()
            prompts.append([*first, *first])
        found.append((name, model, prompts, "induction", random))
    if stories is not None:
        texts = [x for x in json.loads(stories.read_text(encoding="utf-8")) if len(x) > 200][:16]
        for name in ("stories260k", "tinystories-instruct-3m"):
            model = interp.load(str(folder / name), name=name)
            prompts = [model.tokenizer(x)["input_ids"][:24] for x in texts]
            found.append((name, model, prompts, "strongest", "first 24 tokens of stories"))
    return found


def ablations(folder: Path | None, stories: Path | None) -> list[dict[str, Any]]:
    """Correlations of predicted and measured changes, for the heads of all layers but the first."""
    rows = []
    for name, model, prompts, rule, told in cases(folder, stories):
        first = model.sites[0].layer
        heads = [h for h in model.heads() if h.layer > first]
        if len(heads) > 12:  # evenly spread over the layers
            heads = heads[:: -(-len(heads) // 12)]
        start = time.perf_counter()
        found = check_shares(model, heads, prompts, at=rule, top=3)
        frame = found.to_pandas()
        same = (frame["score"] * frame["predicted"] > 0).mean()
        rows.append(
            {
                "model": name,
                "prompts": told,
                "n": int(frame["n"].max()),
                "at": rule,
                "heads": len(heads),
                "ablations": len(frame),
                "correlations": {k: list(v) for k, v in found.correlations.items()},
                "same_sign": float(same),
                "seconds": round(time.perf_counter() - start, 1),
            }
        )
        print(rows[-1], flush=True)
    return rows


def costs() -> list[dict[str, Any]]:
    """Seconds and memory on a randomly initialised model of the size of GPT-2 small."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = GPT2LMHeadModel(GPT2Config(attn_implementation="eager")).eval()
    model = interp.load(module, name="GPT-2 small, random weights", check=False)
    rows = []
    generator = torch.Generator().manual_seed(0)
    for n, heads in ((32, "L11H0"), (32, "L11H0,L11H1,L11H2,L11H3")):
        ids = torch.randint(0, 50257, (4, n), generator=generator).tolist()
        start = time.perf_counter()
        found = qk_shares(model, heads, ids, null="none")
        seconds = time.perf_counter() - start
        rows.append(
            {
                "what": f"qk_shares of {heads.count('L')} heads, 4 prompts of {n} tokens",
                "terms": len(found),
                "seconds": round(seconds, 1),
                "peak_mb": _peak(),
            }
        )
        print(rows[-1], flush=True)
    ids = torch.randint(0, 50257, (8,), generator=generator).tolist()
    start = time.perf_counter()
    graph = attribution_graph(model, ids)
    rows.append(
        {
            "what": f"attribution graph of 8 tokens, {graph.nodes_before} nodes",
            "terms": graph.edges_before,
            "seconds": round(time.perf_counter() - start, 1),
            "peak_mb": _peak(),
        }
    )
    print(rows[-1], flush=True)
    return rows


def graphs() -> list[dict[str, Any]]:
    """Graphs of the bundled induction model and of random weights on the same prompts."""
    model, rows = interp.load("bundled:induction"), []
    prompts = repeats(model, n=8, max_length=8, seed=5).ids
    for name, one in (("trained", model), ("random weights", random_init(model, 0))):
        found = [attribution_graph(one, list(ids)) for ids in prompts]
        rows.append(
            {
                "weights": name,
                "n": len(found),
                "kept_nodes": _mean(len(g.nodes) / g.nodes_before for g in found),
                "kept_edges": _mean(len(g) / g.edges_before for g in found),
                "residual": max(g.residual for g in found),
                "mlp_error": _mean(g.mlp_error for g in found),
                "mlp_error_identity": _mean(
                    attribution_graph(one, list(ids), mlp="identity").mlp_error for ids in prompts
                ),
            }
        )
        print(rows[-1], flush=True)
    return rows


def _mean(values: Any) -> float:
    found = list(values)
    return sum(found) / len(found)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def page(made: dict[str, Any]) -> str:
    """The page."""
    read = [r for r in made["families"] if "error" in r]
    lines = [
        "# Query-key shares: errors, ablations, time",
        "",
        f"Error of the sum of all terms, of the attention score, in {len(read)} families of tiny "
        f"randomly initialised models (all heads, three prompts of 12 tokens), and error of the sum "
        "of loadings, of the largest entry of the head's output.",
        "",
        "| family | heads | error of scores | error of outputs | seconds |",
        "|---|---|---|---|---|",
    ]
    for r in read:
        other = f"{r['loadings_error']:.1e}" if "loadings_error" in r else "refused"
        lines.append(
            f"| {r['family']} | {r['heads']} | {r['error']:.1e} | {other} | {r['seconds']} |"
        )
    refused = [r["family"] for r in made["families"] if "refused" in r]
    lines += [
        "",
        f"Refused by name ({len(refused)}): {', '.join(refused)}. Their streams have norms after "
        "attention, several stacks, no tokens, or scores that are not one product.",
        "",
        "## Do shares predict ablations?",
        "",
        "The three writers with the largest shares (relative to the visible keys) on each side of "
        "each head, chosen on half of the prompts, are removed from that side alone on the others. "
        "Predicted: norms held. Measured: the model's own norm on the stream without the writer. "
        "Pearson correlation over heads, sides, writers and prompts, with its bootstrap interval "
        "over prompts; last the share of ablations whose predicted change of the score has the "
        "measured sign.",
        "",
        "| model | at | heads | held-out prompts | score | attention | random direction | same sign |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in made["ablations"]:
        c = {k: f"{v[0]:.3f} [{v[1]:.3f}, {v[2]:.3f}]" for k, v in r["correlations"].items()}
        lines.append(
            f"| {r['model']} | {r['at']} | {r['heads']} | {r['n']} | {c['score']} | "
            f"{c['attention']} | {c['random']} | {r['same_sign']:.2f} |"
        )
    lines += [
        "",
        "`random direction`: the prediction beside the change of the score when a random "
        "direction of the same length is removed in place of the writer.",
        "",
        "## Graphs beside random weights",
        "",
        "`bundled:induction`, 8 prompts of random tokens repeated twice; shares of nodes and edges "
        "that pruning keeps (0.8 of the influence of nodes, 0.98 of edges).",
        "",
        "| weights | nodes kept | edges kept | largest residual | MLP error, gradient | identity |",
        "|---|---|---|---|---|---|",
    ]
    for r in made["graphs"]:
        lines.append(
            f"| {r['weights']} | {r['kept_nodes']:.3f} | {r['kept_edges']:.4f} | "
            f"{r['residual']:.1e} | {r['mlp_error']:.2f} | {r['mlp_error_identity']:.2f} |"
        )
    lines += [
        "",
        "## Time and memory",
        "",
        "A model of the size of GPT-2 small, random weights, "
        "one thread of a shared machine; peak memory of the process, so a row includes all before it.",
        "",
        "| what | terms or edges | seconds | peak MB |",
        "|---|---|---|---|",
    ]
    for r in made["costs"]:
        lines.append(f"| {r['what']} | {r['terms']} | {r['seconds']} | {r['peak_mb']} |")
    lines += ["", made["made"], ""]
    return "\n".join(lines)


def main() -> None:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--stories", type=Path)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    start = time.perf_counter()
    made: dict[str, Any] = {
        "graphs": graphs(),
        "ablations": ablations(asked.models, asked.stories),
        "families": families(),
        "costs": costs(),
    }
    minutes = (time.perf_counter() - start) / 60
    made["made"] = (
        f"interp {interp.__version__}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, {minutes:.0f} min. Command: `python benchmarks/qk_shares.py`."
    )
    (HERE / "qk_shares.json").write_text(as_json(made), encoding="utf-8")
    (HERE / "qk_shares.md").write_text(page(made), encoding="utf-8")


if __name__ == "__main__":
    main()
