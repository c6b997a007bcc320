"""Long chains and the sources of answers: time, memory, precision at k, calibration, agreement.

    python -m benchmarks.chains                            every part
    python -m benchmarks.chains --parts length sources     some of them
    python -m benchmarks.chains --story FOLDER             with a trained model of small stories

Parts: `length` scores receiver heads of a Llama of 2 layers, 2 heads and random weights on chains
of 2k to 30k random tokens in sentences of 20; `sources` finds the planted source of an answer among
8k and 32k tokens in sentences of 64, in a planted induction model; each figure comes from a process
of its own, after a short run has loaded and compiled everything, and memory is the growth of the
process's peak. `receivers`, `judge` and `agreement` use short planted chains. `story` judges a
trained model on English documents. Writes chains.md and chains.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.attention import peak_of
from benchmarks.long_contexts_rooms import ids_of, model_of
from benchmarks.retrieval_problem import table

CHAINS = (2_000, 8_000, 30_000)
DOCUMENTS = (8_192, 32_768)
WAYS = {
    "read": ["attention", "heads"],
    "gradient": ["gradient"],
    "leave_one_out": ["heads", "leave_one_out"],
}
PARTS = ("length", "sources", "receivers", "judge", "agreement", "story")


def long_chain(tokens: int, size: int = 20) -> Any:
    """A chain of random tokens in sentences of one size."""
    from interp.text.chains import Chain

    spans = tuple((a, min(a + size, tokens)) for a in range(0, tokens, size))
    return Chain(tuple(ids_of(tokens)), spans, ("",) * len(spans))


def measure_length(tokens: int) -> dict[str, Any]:
    from interp.text.chains import receiver_heads

    model = model_of()
    receiver_heads(model, [long_chain(400)], null=False)
    chain = long_chain(tokens)
    clock, processor = time.perf_counter(), time.process_time()
    grown = peak_of(lambda: receiver_heads(model, [chain], null=False))
    return {
        "growth_mib": grown,
        "seconds": time.perf_counter() - clock,
        "processor_seconds": time.process_time() - processor,
    }


def planted_documents(model: Any, tokens: int, number: int = 2) -> list[Any]:
    """Documents of random tokens whose answer is told once, at another place in each."""
    from interp.text.chains import linked_chains

    sizes = {"n_sentences": tokens // 64, "length": 64, "anchors": 1, "links": 1}
    return linked_chains(model, n_chains=number, **sizes)


def measure_sources(tokens: int, way: str) -> dict[str, Any]:
    import interp
    from interp import planted
    from interp.text.context import answer_sources, judge_sources

    built = planted.induction(vocab=32, heads=2, kv_heads=1, context=2**16)
    model = interp.load(built.model, name="planted")
    short = planted_documents(model, 1024, 4)
    judged = judge_sources(
        model, short, methods=["heads", *WAYS[way][-1:]][-2:], n_heads=1, candidates=2
    )
    [chain] = planted_documents(model, tokens - 64, 1)
    run = lambda: answer_sources(  # noqa: E731
        model, chain, methods=WAYS[way], judged=judged, candidates=2, batch_size=1
    )
    kept: list[Any] = []
    clock, processor = time.perf_counter(), time.process_time()
    grown = peak_of(lambda: kept.append(run()))
    found = {
        "growth_mib": grown,
        "seconds": time.perf_counter() - clock,
        "processor_seconds": time.process_time() - processor,
        "tokens_exactly": len(chain.prompt),
        "sentences": len(chain),
    }
    scores, confidence = kept[0].scores[WAYS[way][-1]], kept[0].confidence[WAYS[way][-1]]
    first = int(scores.argmax())
    found["precision"] = float(first == chain.sources[0])
    found["confidence"] = float(confidence[first])
    return found


def apart(*words: str) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.chains", "--one", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def part_length() -> list[dict[str, Any]]:
    return [{"tokens": n, "map_mib": n * n * 4 / 2**20} | apart("length", str(n)) for n in CHAINS]


def part_sources() -> list[dict[str, Any]]:
    return [
        {"tokens": n, "way": way} | apart("sources", str(n), way) for n in DOCUMENTS for way in WAYS
    ]


def part_receivers() -> dict[str, Any]:
    """Kurtosis of the planted head and of the best other one, planted and with random heads."""
    import interp
    from interp import planted
    from interp.text.chains import linked_chains, receiver_heads

    sizes = {"n_chains": 8, "n_sentences": 24, "anchors": 1, "links": 4}
    found: dict[str, Any] = {}
    for name in ("induction", "noise"):
        built = getattr(planted, name)(vocab=208)
        model = interp.load(built.model, name=name)
        frame = receiver_heads(model, linked_chains(model, **sizes)).to_pandas()
        copier = built.roles.get("induction", [(-1, -1)])[0]
        mine = (frame["layer"] == copier[0]) & (frame["head"] == copier[1])
        row = {"others": float(frame[~mine]["score"].max()), "heads": len(frame)}
        if mine.any():
            row |= {k: float(frame[mine][k].iloc[0]) for k in ("score", "sem", "null")}
        found[name] = row
    return found


def rows_of(judged: Any) -> list[dict[str, Any]]:
    keep = [
        "metric",
        "score",
        "sem",
        "low",
        "high",
        "null",
        "n",
        "brier",
        "brier_of_base_rate",
        "calibration_error",
    ]
    return [{k: r[k] for k in keep} for r in judged.to_pandas().to_dict("records")]


def part_judge() -> dict[str, Any]:
    """Precision at k with one source, with two of which each suffices, and with random heads."""
    import interp
    from interp.text.chains import linked_chains
    from interp.text.context import judge_sources

    found = {}
    cases = (("planted:induction", 1), ("planted:induction", 2), ("planted:noise", 1))
    for name, copies in cases:
        model = interp.load(name)
        chains = linked_chains(
            model, n_chains=24, n_sentences=12, length=6, anchors=1, links=3, copies=copies
        )
        judged = judge_sources(model, chains, n_heads=1, n_ablations=32, batch_size=16)
        found[f"{name}, {copies} source{'s' * (copies > 1)}"] = {
            "rows": rows_of(judged),
            "answered": sum(judged.answered),
            "documents": len(judged.documents),
        }
    return found


def part_agreement() -> list[dict[str, Any]]:
    """Agreement of the measures of anchors on planted chains."""
    import interp
    from interp import planted
    from interp.text.chains import linked_chains, thought_anchors

    model = interp.load(planted.induction(vocab=112).model, name="planted")
    chains = linked_chains(model, n_chains=8, n_sentences=16, length=6, anchors=1, links=3)
    found = thought_anchors(model, chains, n_heads=1, n_rollouts=8, max_new_tokens=12)
    return found.agreement().to_dict("records")


def part_story(folder: str) -> dict[str, Any]:
    """The ways, their calibration and the agreement of anchors in a model of small stories."""
    import interp
    from interp.text.chains import receiver_heads, thought_anchors
    from interp.text.context import judge_sources, sentence_documents, stated_and_observed

    model, found = interp.load(folder), {}
    for copies in (1, 2):
        documents = sentence_documents(model, n_documents=32, n_sentences=10, copies=copies)
        judged = judge_sources(model, documents, n_ablations=32, batch_size=16)
        tables = {
            way: stated_and_observed(judged, way).to_dict("records")
            for way in ("heads", "ablations")
        }
        found[f"{copies} source{'s' * (copies > 1)}"] = {
            "rows": rows_of(judged),
            "answered": sum(judged.answered),
            "documents": len(judged.documents),
            "heads": [str(h) for h in judged.heads_used],
            "reliability": tables,
        }
    documents = sentence_documents(model, n_documents=8, n_sentences=10, seed=1)
    heads = receiver_heads(model, documents)
    found["receivers"] = (
        heads.top(5).to_pandas()[["layer", "head", "score", "sem", "null"]].to_dict("records")
    )
    anchors = thought_anchors(model, documents, n_rollouts=8, max_new_tokens=24, batch_size=10)
    found["agreement"] = anchors.agreement().to_dict("records")
    found["model"] = Path(folder).name
    return found


def judged_table(one: dict[str, Any]) -> list[str]:
    rows = [
        [
            "way",
            "precision at k",
            "95 % interval",
            "random order",
            "calibration error",
            "Brier",
            "Brier of the base rate",
        ]
    ]
    for r in one["rows"]:
        rows.append(
            [
                r["metric"],
                f"{r['score']:.2f}",
                f"{r['low']:.2f} to {r['high']:.2f}",
                f"{r['null']:.2f}",
                f"{r['calibration_error']:.3f}",
                f"{r['brier']:.3f}",
                f"{r['brier_of_base_rate']:.3f}",
            ]
        )
    return table(rows)


def agreement_table(rows: list[dict[str, Any]]) -> list[str]:
    out = [["measures", "Spearman", "95 % interval", "permuted", "p"]]
    for r in rows:
        if r["spearman"] == r["spearman"]:
            out.append(
                [
                    f"{r['measure']}, {r['other']}",
                    f"{r['spearman']:.2f}",
                    f"{r['low']:.2f} to {r['high']:.2f}",
                    f"{r['null']:.2f}",
                    f"{r['p']:.3f}",
                ]
            )
    return table(out)


def report(found: dict[str, Any]) -> str:
    """Return the page of all parts that were measured."""
    about = found["about"]
    lines = [
        "# Long chains and the sources of answers",
        "",
        f"torch {about['torch']}, transformers {about['transformers']}, Python {about['python']}, "
        f"{about['machine']}, {about['threads']} thread of torch; the machine was shared with "
        "other work, so processor seconds matter. Made by `python -m benchmarks.chains`.",
        "",
    ]
    if "length" in found:
        lines += [
            "## Receiver heads by length",
            "",
            "Llama of 2 layers x 2 heads, random weights, sentences of 20 tokens. *One map* "
            "is one float32 tensor of all queries by all keys, of which a stored pattern "
            "holds one per head and layer.",
            "",
        ]
        rows = [
            ["tokens", "sentences", "growth of the peak, MiB", "one map, MiB", "processor seconds"]
        ]
        rows += [
            [
                f"{r['tokens']:,}",
                f"{-(-r['tokens'] // 20):,}",
                f"{r['growth_mib']:,.0f}",
                f"{r['map_mib']:,.0f}",
                f"{r['processor_seconds']:.1f}",
            ]
            for r in found["length"]
        ]
        lines += table(rows)
    if "sources" in found:
        lines += [
            "## Sources among many tokens",
            "",
            "Planted induction of 2 layers x 2 heads of width 128, sentences of 64 tokens; "
            "heads and confidence from four documents of 1,024 tokens. Leave-one-out hides "
            "the two sentences with most attention.",
            "",
        ]
        rows = [
            [
                "tokens",
                "way",
                "source first",
                "confidence",
                "growth of the peak, MiB",
                "processor seconds",
            ]
        ]
        for r in found["sources"]:
            cells = (
                ["failed: " + r["failed"], "", "", ""]
                if "failed" in r
                else [
                    "yes" if r["precision"] == 1 else "no",
                    f"{r['confidence']:.2f}",
                    f"{r['growth_mib']:,.0f}",
                    f"{r['processor_seconds']:.0f}",
                ]
            )
            rows.append([f"{r['tokens']:,}", r["way"], *cells])
        lines += table(rows)
    if "receivers" in found:
        lines += [
            "## Receiver heads of planted chains",
            "",
            "Eight chains of 24 sentences, of which one is referred to by four. The null has "
            "the tokens of each chain in random order.",
            "",
        ]
        rows = [["model", "planted head", "null", "largest other head"]]
        for name, r in found["receivers"].items():
            planted = f"{r['score']:.1f} ± {r['sem']:.1f}" if "score" in r else "none"
            null = f"{r['null']:.1f}" if "null" in r else ""
            rows.append([name, planted, null, f"{r['others']:.1f}"])
        lines += table(rows)
    for name, one in found.get("judge", {}).items():
        lines += [
            f"## Precision at k: {name}",
            "",
            f"{one['documents']} held-out documents, {one['answered']} answered by the model.",
            "",
            *judged_table(one),
        ]
    if "agreement" in found:
        lines += [
            "## Agreement on planted chains",
            "",
            "Eight chains of 16 sentences, of which one is an anchor and one holds the answer.",
            "",
            *agreement_table(found["agreement"]),
        ]
    if "story" in found:
        story = found["story"]
        for name in ("1 source", "2 sources"):
            one = story[name]
            lines += [
                f"## {story['model']}: {name}",
                "",
                f"{one['documents']} held-out documents of ten English sentences, of which "
                f"the model answers {one['answered']}. Heads: {', '.join(one['heads'])}.",
                "",
                *judged_table(one),
            ]
            rows = [["way", "stated confidence", "observed", "95 % interval", "sentences"]]
            for way, bins in one["reliability"].items():
                rows += [
                    [
                        way,
                        f"{b['stated']:.2f}",
                        f"{b['observed']:.2f}",
                        f"{b['low']:.2f} to {b['high']:.2f}",
                        str(b["sentences"]),
                    ]
                    for b in bins
                ]
            lines += table(rows)
        lines += [
            f"## {story['model']}: agreement of the measures of anchors",
            "",
            "Eight of these documents.",
            "",
            *agreement_table(story["agreement"]),
        ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Run the benchmark, or one measurement in this process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--story", help="folder of the model for the part story")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    if given.one:
        part, tokens, *rest = given.one
        made = (
            measure_length(int(tokens)) if part == "length" else measure_sources(int(tokens), *rest)
        )
        print(json.dumps(made))
        return
    import torch

    path = given.out / "chains.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    found["about"] = {p: version(p) for p in ("torch", "transformers")} | {
        "python": platform.python_version(),
        "machine": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
    }
    parts = {
        "length": part_length,
        "sources": part_sources,
        "receivers": part_receivers,
        "judge": part_judge,
        "agreement": part_agreement,
    }
    for part in given.parts:
        if part == "story" and given.story is None:
            print("story: left out, since no --story FOLDER is given", flush=True)
            continue
        found[part] = part_story(given.story) if part == "story" else parts[part]()
        print(part, json.dumps(found[part], default=float)[:300], flush=True)
        path.write_text(json.dumps(found, indent=1, default=float) + "\n")
        (given.out / "chains.md").write_text(report(found))


if __name__ == "__main__":
    main()
