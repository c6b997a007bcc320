"""How often heads of random models are called special, and how often intervals hold the truth.

    python benchmarks/calibration.py [--models 50] [--draws 6] [--repeats 100] [--keep FOLDER]

Family-wise error: randomly initialised models of four shapes are scored as `interp score` scores
them, and the claims of the report are counted. Each model is held against the next models of its
shape, which are draws of the same initialisation; that saves scoring six further models for each.
Coverage: scores with their 95 % intervals from many sets of prompts; the truth is the mean over all
sets. Power: planted and trained heads that are known, and how many are claimed. Writes
benchmarks/calibration.json, .md and interp/core/calibration.json, which the report reads.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import pickle
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from calibration_page import between, page

import interp
from interp import planted
from interp.core.clusters import cluster_summary
from interp.core.intervals import around, site_intervals
from interp.core.prompts import repeats
from interp.core.registry import METRICS
from interp.core.table import HeadTable
from interp.heads.declaration import BoundAnalysis, bound
from interp.heads.score_rows import MetricScores, PatternRun, means_by_site, table_of
from interp.heads.scoring import why_not
from interp.heads.scoring_without_prompts import _arrays, _exact
from interp.heads.special import LEVEL, Catalogue, catalogue_of
from interp.model.content import model_provenance

HERE = Path(__file__).parent
SHAPES = ("gpt2", "llama", "bert", "neox")
TOLD = "four small shapes (GPT-2, Llama with grouped keys, BERT and GPT-NeoX; 2 layers)"
PARTS = {  # judged together
    "by default": ("detectors", "weights"),
    **{f"with -m {g}": (g,) for g in ("experiments", "geometry", "categories", "cache")},
    "with -m all": ("detectors", "weights", "geometry", "experiments"),
}
COVERED = (
    "induction",
    "previous_token",
    "entropy",
    "echo",
    "retrieval",
    "qr_retrieval",
    "item_position",
    "selective_induction",
    "sink",
)


def module_of(
    shape: str, seed: int, vocabulary: int = 128, max_length: int = 128
) -> torch.nn.Module:
    """A small transformer with the initialisation of its class."""
    import transformers as hf

    common = {"vocab_size": vocabulary, "max_position_embeddings": max_length}
    two = {"num_hidden_layers": 2, "bos_token_id": 0, "eos_token_id": 1}
    torch.manual_seed(seed)
    if shape == "gpt2":
        sizes = {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": max_length}
        config = hf.GPT2Config(vocab_size=vocabulary, bos_token_id=0, eos_token_id=1, **sizes)
        return hf.GPT2LMHeadModel(config).eval()
    if shape == "llama":
        heads = {"num_attention_heads": 8, "num_key_value_heads": 2}
        sizes = {"hidden_size": 64, "intermediate_size": 128}
        return hf.LlamaForCausalLM(hf.LlamaConfig(**common, **two, **heads, **sizes)).eval()
    if shape == "neox":
        sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 8}
        return hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**common, **two, **sizes)).eval()
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 6}
    config = hf.BertConfig(**common, num_hidden_layers=2, pad_token_id=1, **sizes)
    return hf.BertForMaskedLM(config).eval()


def random_model(shape: str, number: int) -> interp.Model:
    return interp.load(module_of(shape, 1000 + number), name=shape)


def silent(*_: Any) -> None: ...


def found_by(
    model: interp.Model, bounds: Sequence[BoundAnalysis], seed: int
) -> dict[str, MetricScores]:
    """What `interp score` finds on a model, without its random weights."""
    patterned = [b for b in bounds if b.patterned()]
    out: dict[str, MetricScores] = {}
    if patterned:
        run = PatternRun(model, repeats(model, seed=seed), seed, 16, "stored", silent)
        scores = run.of(model, run.prompts, patterned, "")
        tokens = [b for b in patterned if b.analysis.reads_tokens]
        shuffled = run.shuffled(tokens) if tokens else {}
        for b in patterned:
            kind = "shuffled-tokens" if b.label in shuffled else "random-init"
            beside = shuffled.get(b.label)
            out[b.label] = MetricScores(scores[b.label], run.clusters(), kind, beside)
    for b in bounds:
        if b.analysis.kind == "weights":
            out[b.label] = MetricScores(_exact(b.from_weights(model)), None, "random-init")
        elif b.analysis.kind == "experiment":
            # with the notes come the null of categories, and reasons in place of errors
            own_null = METRICS[b.label.partition(":")[0]].group in ("categories", "roles")
            trials = b.experiment(model, seed, silent, notes=own_null)
            beside = None if trials.null is None else _arrays(trials.null)
            kind = "random-init" if beside is None else trials.null_kind
            out[b.label] = MetricScores(_arrays(trials.values), trials.clusters, kind, beside)
    return out


def applying(model: interp.Model, groups: Sequence[str] = ()) -> list[BoundAnalysis]:
    asked = [m for m, e in METRICS.items() if not groups or e.group in groups]
    return [b for b in map(bound, asked) if why_not(model, b) is None]


def tables(
    model: interp.Model, mine: dict[str, MetricScores], others: Sequence[dict[str, dict]]
) -> dict[str, HeadTable]:
    """A table per metric, with the scores of other models as the draws of random weights."""
    out = {}
    for label, found in mine.items():
        draws = [x[label] for x in others]
        held = MetricScores(found.values, found.clusters, found.null_kind, found.null, draws)
        out[label] = table_of(model, bound(label), held, model_provenance(model), {})
    return out


def judged(by_metric: dict[str, HeadTable], groups: Sequence[str]) -> tuple[Catalogue, HeadTable]:
    chosen = [t for label, t in by_metric.items() if METRICS[label].group in groups]
    table = HeadTable.concat(chosen)
    return catalogue_of(table, {label: end for label, (_, end) in METRICS.ranges().items()}), table


def kept(path: Path | None, make: Callable[[], Any]) -> Any:
    """What a file holds, or what is made now and put there."""
    if path is not None and path.exists():
        return pickle.loads(path.read_bytes())
    made = make()
    if path is not None:
        path.write_bytes(pickle.dumps(made))
    return made


def familywise(
    number: int,
    draws: int,
    keep: Path | None,
    only: str = "",
    shapes: Sequence[str] = SHAPES,
    model_of: Callable[[str, int], interp.Model] = random_model,
) -> dict[str, Any]:
    """Claims on random models, the rate of small p of each metric, and what chance is."""
    parts = {part: groups for part, groups in PARTS.items() if only in ("", part)}
    wanted = parts[only] if only else ()
    claimed, below = Counter(), Counter()
    who: dict[str, Counter] = {part: Counter() for part in parts}
    by_shape: dict[str, Counter] = {shape: Counter() for shape in shapes}
    p_of: dict[str, list[np.ndarray]] = {}
    values: dict[str, list[np.ndarray]] = {}
    for shape in shapes:
        some = model_of(shape, 0)
        bounds = applying(some, wanted)

        def one(
            at: int, shape: str = shape, bounds: Sequence[BoundAnalysis] = bounds
        ) -> dict[str, MetricScores]:
            return found_by(model_of(shape, at), bounds, 0)

        every = [
            kept(None if keep is None else keep / f"{shape}-{at}.pkl", lambda at=at: one(at))
            for at in range(number)
        ]
        scores = [{label: means_by_site(f.values) for label, f in x.items()} for x in every]
        for at, mine in enumerate(every):
            others = [scores[(at + k) % number] for k in range(1, draws + 1)]
            made = tables(some, mine, others)
            for part, groups in parts.items():
                found, table = judged(made, groups)
                frame = table.to_pandas()
                claimed[part] += bool(found.special)
                below[part] += bool((frame["p"] < LEVEL / max(found.tests, 1)).any())
                by_shape[shape][part] += bool(found.special)
                who[part].update({x.metric for x in found.special})
            for label, table in made.items():
                frame = table.to_pandas()
                p_of.setdefault(label, []).append(frame["p"].to_numpy())
                values.setdefault(label, []).append(frame["score"].to_numpy())
        print(shape, dict(claimed), dict(below), flush=True)
    models = number * len(shapes)
    return {
        "familywise": [
            {
                "of": part,
                "models": models,
                "claimed": claimed[part],
                "p_alone": below[part],
                "low": between(claimed[part], models)[0],
                "high": between(claimed[part], models)[1],
                "by_shape": {shape: by_shape[shape][part] for shape in shapes},
                "metrics": dict(who[part]),
            }
            for part in parts
        ],
        "p_below": {
            label: {str(level): share(np.concatenate(p), level) for level in (0.05, 0.01)}
            for label, p in p_of.items()
        },
        "chance": {label: middle(np.concatenate(x)) for label, x in values.items()},
    }


def share(p: np.ndarray, level: float) -> float:
    return round(float((p[~np.isnan(p)] < level).mean()), 4) if np.isfinite(p).any() else math.nan


def middle(x: np.ndarray) -> dict[str, float]:
    low, median, high = np.nanquantile(x, (0.025, 0.5, 0.975))
    return {"median": digits(median), "low": digits(low), "high": digits(high)}


def digits(x: float) -> float:
    return float(f"{x:.3g}")


def models_with_truth() -> Iterator[tuple[str, interp.Model]]:
    yield "bundled:induction", interp.load("bundled:induction")
    yield "random Llama shape", random_model("llama", 0)


def coverage(repeats_: int, keep: Path | None) -> list[dict[str, Any]]:
    """Of 95 % intervals over clusters, per model and metric: as chosen, and t intervals."""
    rows = []
    for name, model in models_with_truth():
        for label in COVERED:
            path = None if keep is None else keep / f"coverage {name} {label}.pkl".replace(":", " ")
            sets = kept(path, lambda label=label, model=model: drawn(model, label, repeats_))
            analysis = bound(label).analysis
            found = covered(sets, (analysis.low, analysis.high))
            if found["heads"]:  # retrieval has no scores where a model answers nothing
                rows.append({"model": name, "metric": label} | found)
                print(rows[-1], flush=True)
    return rows


def drawn(model: interp.Model, label: str, number: int) -> list[tuple[np.ndarray, Any]]:
    """Values `[trial, head]` and clusters of many sets of prompts."""
    sets = []
    for seed in range(number):
        found = found_by(model, [bound(label)], 10_000 + seed)[label]
        sets.append((np.concatenate([*found.values.values()], 1), found.clusters))
    return sets


def covered(
    sets: Sequence[tuple[np.ndarray, Any]], bounds: tuple[float | None, float | None]
) -> dict[str, Any]:
    """Intervals as `interp score` chooses them, and the t intervals of the same values."""
    means_ = np.stack([cluster_summary(x).score for x, _ in sets])
    truth = np.nanmean(means_, 0)
    moving = np.nanstd(means_, 0) > 1e-9  # a head that always scores the same has no interval
    if not moving.any():
        return {"heads": 0}
    hits: dict[str, list[np.ndarray]] = {"chosen": [], "t": []}
    counts = []
    for x, labels in sets:
        own = cluster_summary(x, labels)
        ends = {
            "chosen": site_intervals({"": x}, labels, bounds)[""].ends,
            "t": around(own.score, [(own.sem, own.clusters - 1.0)]),
        }
        for how, found in ends.items():
            inside = (found[:, 0] <= truth + 1e-12) & (truth - 1e-12 <= found[:, 1])
            hits[how].append(np.where(np.isnan(found[:, 0]), math.nan, inside)[moving])
        counts.append(own.clusters)
    shown = ~np.isnan(np.stack(hits["chosen"]))
    told: dict[str, Any] = {"heads": int(moving.sum()), "sets": len(sets)}
    told |= {"n": float(np.mean([len(x) for x, _ in sets])), "shown": float(shown.mean())}
    told["clusters"] = round(float(np.mean(counts)), 1)
    for how, found in hits.items():
        # heads of one set share its prompts: the error is over sets
        each = [np.nanmean(x) for x in found if not np.isnan(x).all()]
        some = len(each) > 1
        told[how] = float(np.mean(each)) if some else None
        told[how + "_error"] = float(np.std(each, ddof=1) / math.sqrt(len(each))) if some else None
    return told


def power(draws: int) -> list[dict[str, Any]]:
    """Known heads of planted and trained models, and how many of them are claimed."""
    rows = []
    ends = {label: end for label, (_, end) in METRICS.ranges().items()}
    for seed in range(3):
        built = planted.zoo(heads=8, kv_heads=4, seed=seed)
        model = interp.load(built.model, name=f"planted zoo {seed}")
        metrics = [m for m in built.attends if m in METRICS]
        table = interp.score(model, metrics, null_draws=draws, null_cache=False)
        special = {(x.metric, (x.layer, x.head)) for x in catalogue_of(table, ends).special}
        for metric in metrics:
            known = {(metric, tuple(h)) for h in built.attends[metric]}
            rows.append(
                {
                    "model": model.name,
                    "metric": metric,
                    "known": len(known),
                    "claimed": len(known & special),
                }
            )
    model = interp.load("bundled:induction")
    table = interp.score(model, null_draws=draws, null_cache=False)
    special = {(x.metric, x.layer) for x in catalogue_of(table, ends).special}
    heads = [x for x in catalogue_of(table, ends).special if x.metric == "induction"]
    rows.append(
        {"model": "bundled:induction", "metric": "induction", "known": 8, "claimed": len(heads)}
    )
    rows.append(
        {
            "model": "bundled:induction",
            "metric": "previous_token",
            "known": 1,
            "claimed": int(("previous_token", 0) in special),
        }
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=50, help="of each shape")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=100, help="sets of prompts for coverage")
    parser.add_argument("--only", choices=("coverage",), help="measure this, keep the rest")
    parser.add_argument("--keep", type=Path, help="keep what is scored here, and go on with it")
    given = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    if given.only:
        found = json.loads((HERE / "calibration.json").read_text(encoding="utf-8"))
        found["coverage"] = coverage(given.repeats, given.keep)
        return write(found)
    found = familywise(given.models, given.draws, given.keep)
    found |= {"models": given.models * len(SHAPES), "draws": given.draws, "shapes": TOLD}
    found["power"] = power(given.draws)
    found["coverage"] = coverage(given.repeats, given.keep)
    found["made"] = (
        f"Made by `python benchmarks/calibration.py --models {given.models} --draws {given.draws}"
        f" --repeats {given.repeats}` with interp {interp.__version__}, torch {torch.__version__},"
        f" Python {platform.python_version()}; {time.monotonic() - began:.0f} s with what --keep"
        " had already."
    )
    write(found)


def write(found: dict[str, Any]) -> None:
    (HERE / "calibration.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (HERE / "calibration.md").write_text(page(found), encoding="utf-8")
    shipped = {key: found[key] for key in ("shapes", "draws", "familywise", "chance", "made")}
    (Path(interp.__file__).parent / "core" / "calibration.json").write_text(
        json.dumps(shipped, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
