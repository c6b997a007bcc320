"""False findings and coverage of comparisons between models, on data whose truth is known.

    python benchmarks/comparison.py [--repeats 200] [--from FOLDER]

Null: the bundled model on two independent draws of prompts that are paired arbitrarily, so that no
head differs and all variation is real; and the model with itself. Coverage: intervals of the
difference between the model and its checkpoint of step 800, and of the similarity of their matched
heads, against the mean over a large population of prompts. Matching: copies whose heads are in
another order are matched exactly, pairs of random weights at chance. Then a second seed of the
bundled model, trained here (minutes) or read with --from, and a fine-tune of one head.

Writes benchmarks/comparison.md and .json.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

import interp
from interp import bundled
from interp.core.intervals import mean_intervals
from interp.core.prompts import Prompts, repeats
from interp.heads.between_models.match import assigned
from interp.heads.between_models.measured import PairableScores, of_table
from interp.heads.between_models.paired import paired_differences
from interp.heads.between_models.similarity import similarities
from interp.model.content import versions
from interp.model.random_weights import RandomWeights
from training.variants import fine_tuned, other_seed, permuted

HERE = Path(__file__).parent
METRICS = ("induction", "previous_token", "first_token")
SIZES = (8, 16, 32)  # prompts of a comparison
LONGEST = 10  # period of the prompts


def rate(hits: list[float]) -> dict[str, float]:
    """Mean of the repetitions and its standard error."""
    x = np.array(hits, dtype=float)
    return {"rate": float(x.mean()), "error": float(x.std(ddof=1) / math.sqrt(len(x)))}


def population(model: interp.Model, n: int, seed: int) -> dict[str, PairableScores]:
    """Scores on many prompts, each its own cluster."""
    prompts = Prompts(repeats(model, n=n, max_length=LONGEST, seed=seed).ids)
    table = interp.score(model, list(METRICS), prompts, null="none", batch_size=64)
    return {metric: of_table(table, metric) for metric in METRICS}


def taken(found: dict[str, PairableScores], which: np.ndarray) -> dict[str, PairableScores]:
    """The scores on some of the prompts."""
    return {
        metric: PairableScores({k: v[which] for k, v in x.sites.items()}, None, False, x.unit, {})
        for metric, x in found.items()
    }


def null_rates(model: interp.Model, repeats_: int) -> list[dict[str, Any]]:
    """False findings between a model and itself on prompts that are drawn twice."""
    size = repeats_ * max(SIZES)
    first, second = (population(model, size, seed) for seed in (1, 2))
    rows = []
    for n in SIZES:
        holm, bh, plain, covered = [], [], [], []
        for r in range(repeats_):
            which = np.arange(r * n, (r + 1) * n)
            found = paired_differences([taken(first, which)], [taken(second, which)])
            frame = found.to_pandas()
            tested = frame[frame["sem"] > 0]
            holm.append(float((frame["p_holm"] < 0.05).any()))
            bh.append(float((frame["p_bh"] < 0.05).any()))
            plain.append(float((tested["p"] < 0.05).mean()))
            covered.append(float(((tested["low"] <= 0) & (tested["high"] >= 0)).mean()))
        told = {"holm": holm, "bh": bh, "uncorrected": plain, "coverage": covered}
        rows.append({"prompts": n, "heads": len(frame)} | {k: rate(v) for k, v in told.items()})
    return rows


def difference_coverage(a: interp.Model, b: interp.Model, repeats_: int) -> list[dict[str, Any]]:
    """Coverage of the intervals of differences, whose truth is the mean of the population."""
    size = 4000
    first, second = (population(model, size, 3) for model in (a, b))
    truth = paired_differences([first], [second]).to_pandas()["score"].to_numpy()
    rng, rows = np.random.default_rng(0), []
    for n in SIZES:
        covered, found_rate = [], []
        for _ in range(repeats_):
            which = rng.choice(size, n, replace=False)
            frame = paired_differences([taken(first, which)], [taken(second, which)]).to_pandas()
            inside = (frame["low"] <= truth) & (truth <= frame["high"])
            covered.append(float(inside.mean()))
            found_rate.append(float((frame["p_holm"] < 0.05).mean()))
        rows.append({"prompts": n, "coverage": rate(covered), "found": rate(found_rate)})
    return rows


def match_coverage(a: interp.Model, b: interp.Model, repeats_: int) -> list[dict[str, Any]]:
    """Coverage of the similarity of matched heads, and how often a match is the true one.

    The true match is that of the population.
    """
    size = 1500
    prompts = Prompts(repeats(a, n=size, max_length=LONGEST, seed=4).ids)
    groups = similarities(a, b, "patterns", "layer", prompts, 0).groups.values()
    rng, rows = np.random.default_rng(1), []
    for n in SIZES:
        covered, same = [], []
        for _ in range(repeats_):
            which = rng.choice(size, n, replace=False)
            inside, right = [], []
            for group in groups:
                truth, whole = group.across.mean(0), assigned(group.across.mean(0))
                drawn = group.across[which]
                pairs = assigned(drawn.mean(0))
                values = np.stack([drawn[:, i, j] for i, j in pairs.items()])
                low, high = mean_intervals(values, bounds=(0.0, 1.0)).ends.T
                exact = np.array([truth[i, j] for i, j in pairs.items()])
                inside += ((low <= exact) & (exact <= high))[~np.isnan(low)].tolist()
                right += [whole[i] == j for i, j in pairs.items()]
            covered.append(float(np.mean(inside)))
            same.append(float(np.mean(right)))
        rows.append({"prompts": n, "coverage": rate(covered), "same_match": rate(same)})
    return rows


def matching(model: interp.Model, pairs: int) -> dict[str, Any]:
    """Permuted copies, and pairs of random weights."""
    exact = {}
    prompts = repeats(model, n=16, max_length=LONGEST)
    for by in ("patterns", "ov", "qk"):
        hits = []
        for seed in range(10):
            other, places = permuted(model, seed)
            found = interp.heads.match_heads(model, other, prompts, method=by, n_random=0, n_boot=0)
            hits += [
                str(head) == f"L{layer}H{places[layer, h]}"
                for (_, layer, h), head in found.heads_of_b().items()
            ]
        exact[by] = float(np.mean(hits))
    draws = list(RandomWeights(model, 0, 2 * pairs))
    whole, each, same = [], [], []
    small = repeats(model, n=6, max_length=LONGEST)
    for a, b in zip(draws[::2], draws[1::2], strict=True):
        found = interp.heads.match_heads(a, b, small, n_random=199, n_boot=0)
        whole.append(float((found.p_all or 1.0) <= 0.05))
        frame = found.to_pandas()
        each.append(float((frame["p"] <= 0.05).mean()))
        named = "L" + frame["layer"].astype(str) + "H" + frame["head"].astype(str)
        same.append(float((frame["head_b"] == named).mean()))
    random = {"pairs": pairs, "p_all": rate(whole), "p": rate(each), "same_index": rate(same)}
    return {"permuted": exact, "random": random}


def seeds(model: interp.Model, folder: Path | None) -> dict[str, Any]:
    """A second seed, and a fine-tune of one head."""
    source = other_seed() if folder is None else str(folder)
    other = interp.load(source, name="seed 1", tokenizer=model.tokenizer)
    tuned = fine_tuned(model, 1, 5)
    out: dict[str, Any] = {}
    compared = interp.compare(model, tuned, list(METRICS), top=0).to_pandas()
    named = compared[compared["p_holm"] < 0.05]
    heads = "L" + named["layer"].astype(str) + "H" + named["head"].astype(str)
    out["fine_tune"] = {"planted": "L1H5", "found": sorted(set(heads))}
    itself = interp.compare(model, model, list(METRICS), top=0).to_pandas()
    out["itself"] = int((itself["p_bh"] < 0.05).sum())
    for by in ("patterns", "ov", "qk"):
        found = interp.heads.match_heads(model, other, method=by)
        frame = found.to_pandas()
        columns = ["layer", "head", "head_b", "score", "next", "null", "p", "p_bh", "stability"]
        rows = json.loads(frame[columns].round(4).to_json(orient="records"))
        out[f"match_{by}"] = {"p_all": found.p_all, "rows": rows}
    for match in (None, "patterns"):
        frame = interp.compare(model, other, list(METRICS), match=match, top=0).to_pandas()
        told = {"found": int((frame["p_holm"] < 0.05).sum()), "rows": len(frame)}
        told["mean_difference"] = round(float(frame["score"].abs().mean()), 4)
        out[f"seeds_{match or 'by_index'}"] = told
    return out


def spelled(x: dict[str, float]) -> str:
    """A rate with its standard error, in percent."""
    return f"{100 * x['rate']:.1f} ± {100 * x['error']:.1f}"


def told(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        "# Comparisons of models: false findings and coverage",
        "",
        f"`python benchmarks/comparison.py`, {found['repeats']} repetitions each; percent, with",
        "the standard error over repetitions. Three metrics of 16 heads of bundled:induction are",
        "corrected together.",
        "",
        "## Nothing differs",
        "",
        "The model on two draws of prompts, paired arbitrarily. Nominal: 5 % of comparisons with",
        "any false finding (Holm, and Benjamini and Hochberg, where nothing differs); 5 % of the",
        "uncorrected tests; 95 % coverage. The model with itself on the same prompts: "
        f"{found['seeds']['itself']} findings.",
        "",
        "| prompts | any, Holm | any, BH | uncorrected | coverage |",
        "|---|---|---|---|---|",
    ]
    for row in found["null"]:
        cells = [spelled(row[k]) for k in ("holm", "bh", "uncorrected", "coverage")]
        lines.append(f"| {row['prompts']} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Differences and matches",
        "",
        "The bundled model against its checkpoint of step 800: coverage of 95 % intervals, the",
        "share of rows found (Holm), and of heads with the match of the whole population.",
        "",
        "| prompts | differences covered | rows found | similarities covered | same match |",
        "|---|---|---|---|---|",
    ]
    for one, two in zip(found["differences"], found["matches"], strict=True):
        cells = [one["coverage"], one["found"], two["coverage"], two["same_match"]]
        lines.append(f"| {one['prompts']} | {' | '.join(map(spelled, cells))} |")
    made, random = found["matching"], found["matching"]["random"]
    exact = ", ".join(f"{k} {100 * v:.0f} %" for k, v in made["permuted"].items())
    lines += [
        "",
        f"Copies with permuted heads and residual coordinates, matched correctly: {exact}.",
        f"{random['pairs']} pairs of random weights: p_all at most 0.05 in "
        f"{spelled(random['p_all'])} %, p of a head in {spelled(random['p'])} %; the match has the "
        f"same index in {spelled(random['same_index'])} % (12.5 by chance).",
        "",
        "## Two seeds and a fine-tune",
        "",
        f"A fine-tune of the queries of {found['seeds']['fine_tune']['planted']} alone: found "
        f"{', '.join(found['seeds']['fine_tune']['found'])} (Holm). A second seed",
        "after a third of its steps, heads paired by index: "
        f"{found['seeds']['seeds_by_index']['found']} of "
        f"{found['seeds']['seeds_by_index']['rows']} rows differ, mean size "
        f"{found['seeds']['seeds_by_index']['mean_difference']:.3f}; matched by patterns: "
        f"{found['seeds']['seeds_patterns']['found']}, mean size "
        f"{found['seeds']['seeds_patterns']['mean_difference']:.3f}.",
        "",
    ]
    for by in ("patterns", "ov", "qk"):
        one = found["seeds"][f"match_{by}"]
        lines += [f"### Matched by {by}: p of the assignment {one['p_all']:.3g}", ""]
        lines += ["| head | match | similarity | next | null | p | p_bh | stability |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for row in one["rows"]:
            numbers = [row[k] for k in ("score", "next", "null", "p", "p_bh", "stability")]
            cells = " | ".join(f"{x:.3f}" for x in numbers)
            lines.append(f"| L{row['layer']}H{row['head']} | {row['head_b']} | {cells} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="False findings and coverage of comparisons.")
    parser.add_argument("--repeats", type=int, default=200, help="repetitions of each rate")
    parser.add_argument("--from", dest="source", type=Path, help="folder of the second seed")
    chosen = parser.parse_args()
    model = interp.load("bundled:induction")
    earlier = interp.load(str(bundled.checkpoints("induction")[800]), dtype="float32")
    found = {"repeats": chosen.repeats, "versions": versions()}
    found["null"] = null_rates(model, chosen.repeats)
    print(found["null"], flush=True)
    found["differences"] = difference_coverage(model, earlier, chosen.repeats)
    found["matches"] = match_coverage(model, earlier, chosen.repeats)
    print(found["differences"], found["matches"], flush=True)
    found["matching"] = matching(model, max(chosen.repeats // 2, 2))
    print(found["matching"], flush=True)
    found["seeds"] = seeds(model, chosen.source)
    print(found["seeds"], flush=True)
    text = json.dumps(found, indent=1) + "\n"
    (HERE / "comparison.json").write_text(text, encoding="utf-8")
    (HERE / "comparison.md").write_text(told(found), encoding="utf-8")


if __name__ == "__main__":
    main()
