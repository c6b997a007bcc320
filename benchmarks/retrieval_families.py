"""Families of retrieval tasks by length: answers, heads that copy or write, and what a cut loses.

    python -m benchmarks.retrieval_families [--lengths 1024 4096 32768] [--out FOLDER]

The model is `planted.retriever`, whose heads are known. Finished cells are kept in
retrieval_families.json and are not run again. Writes retrieval_families.json and .md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import interp
from interp import planted
from interp.heads import needle
from interp.heads.needle.families import FAMILIES

HERE = Path(__file__).parent
LENGTHS = (1024, 4096, 32768)
NEEDLES = {1024: 8, 4096: 6}  # of longer prompts, one
CUT_UP_TO = 4096  # tokens of the prompts whose caches are cut: each head needs a pass of its own
LEAST_SHARE = 0.1  # of the needle, from which a head counts as copying (Wu et al. 2024)
LEAST_LOGITS = 0.5  # and as writing: its score above the null


def cell(model: interp.Model, family: str, length: int, seed: int = 0) -> dict[str, Any]:
    """Return what is measured of one family at one length."""
    begin, n = time.process_time(), NEEDLES.get(length, 1)
    instances = needle.family_instances(
        model, family, needles=n, lengths=[length], depths=[0.5], seed=seed
    )
    copied = needle.copy_paste(model, instances)
    named = f"written_retrieval:task={family},needles={max(n, 2)},depths=1,lengths=1"
    named += f",min_length={length},max_length={length}"
    written = interp.score(model, named, seed=seed, null="none").to_pandas()
    found: dict[str, Any] = {
        "needles": n,
        "right": float(copied.right.mean()),
        "chance": float(copied.chance.mean()),
        "copying": {f"L{a}H{b}": x for (a, b), x in copied.score().items() if x >= LEAST_SHARE},
        "written": {
            f"L{r.layer}H{r.head}": float(r.score)  # type: ignore[arg-type]
            for r in written.itertuples()
            if abs(float(r.score)) >= LEAST_LOGITS  # type: ignore[arg-type]
        },
    }
    if length <= CUT_UP_TO:
        metric = f"cache_loss:task={family},n={n},max_length={length}"
        rows = interp.score(model, metric, seed=seed, null="none").to_pandas()
        found["cut"] = {f"L{r.layer}H{r.head}": float(r.score) for r in rows.itertuples()}  # type: ignore[arg-type]
    return found | {"seconds": time.process_time() - begin}


def listed(values: dict[str, float], form: str = ".2f") -> str:
    return ", ".join(f"{k} {v:{form}}" for k, v in sorted(values.items(), key=lambda x: -x[1]))


def page(record: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    lines = [
        "# Retrieval families by length",
        "",
        "`planted.retriever` (heads=2, kv_heads=2): L0 has the previous-token head; L1 has the "
        f"induction head {record['roles']['induction']} and the head that counts, "
        f"{record['roles']['counting']}. *Right*: share of the answer's tokens that are the "
        "model's first choices. *Copying*: heads that copy at least "
        f"{LEAST_SHARE} of the needle (literal retrieval). *Writing*: heads that write at least "
        f"{LEAST_LOGITS} logits more of the answer from its sources than from other tokens, "
        "whether or not a word is copied. *Cut*: nats of the answer lost when the cache of one "
        "key-value head keeps the first token and the last four, the largest head. One needle per "
        "32k prompt (two for *writing*), so its numbers have no error. Processor time of one core. "
        "Made by `python -m benchmarks.retrieval_families`.",
        "",
        "| family | tokens | needles | right | chance of copying | copying | writing | cut | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for key, x in record["cells"].items():
        family, length = key.split()
        cut = listed(dict(sorted(x["cut"].items(), key=lambda e: -e[1])[:1])) if "cut" in x else ""
        counted = family == "common_words"  # even attention finds all sources among so many keys
        copying = "not a literal copy" if counted else listed(x["copying"])
        lines.append(
            f"| {family} | {int(length):,} | {x['needles']} | {x['right']:.2f} | "
            f"{x['chance']:.4f} | {copying} | {listed(x['written'])} | {cut} | {x['seconds']:.0f} |"
        )
    lines += [
        "",
        "Variable tracking is not done by induction: the name of a variable stands where it is set "
        "and where it is passed on, and the head attends to both. Common words are found by the "
        "head that counts, which copies nothing literally: at that many sources even attention "
        "holds some of each word, so literal copying says nothing and `retrieval` refuses the "
        "family.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Score retrieval families by length.")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write")
    chosen = parser.parse_args()
    made = planted.build("retriever", heads=2, kv_heads=2, context=max(chosen.lengths) + 8)
    model = interp.load(made.model, name="retriever")
    file = chosen.out / "retrieval_families.json"
    record = json.loads(file.read_text()) if file.exists() else {"cells": {}}
    record["roles"] = {role: f"L{heads[0][0]}H{heads[0][1]}" for role, heads in made.roles.items()}
    for length in chosen.lengths:
        for family in FAMILIES:
            key = f"{family} {length}"
            if key not in record["cells"]:
                record["cells"][key] = cell(model, family, length)
                print(key, record["cells"][key], flush=True)
                file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (chosen.out / "retrieval_families.md").write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main()
