"""Sparse dictionaries and Lorsa heads beside their controls, on a bundled and a story model.

    python benchmarks/dictionaries.py [MODEL TEXTS]

Without arguments only the bundled model is measured. MODEL is a folder, TEXTS a .json list of
texts.
Writes dictionaries.md and dictionaries.json beside this file.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from rounded import as_json

import interp
from interp.core.prompts import Prompts
from interp.dictionaries import (
    monosemanticity,
    profile_heads,
    profile_lorsa,
    score_dictionary,
    score_features,
    score_lorsa,
    train_dictionary,
    train_lorsa,
)
from interp.dictionaries.explained_attention import difference_of_kinds, means_by_kind

HERE = Path(__file__).parent
SHOWN = ("loss_recovered", "loss_recovered_mean", "explained_variance", "l0", "dead_share")
SIZES = {"d_sae": 256, "k": 8, "steps": 300}
LORSA = {"n_heads": 128, "k": 8, "steps": 200}


def measured(
    name: str, model: Any, train: Prompts, test: Prompts, layer: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return rows of dictionaries and Lorsa layers, and groups of monosemanticity, of one layer."""
    rows, groups = [], []
    kinds = {
        "z, topk": {"site": "z", "architecture": "topk"},
        "z, batchtopk": {"site": "z", "architecture": "batchtopk"},
        "attn_out, topk": {"site": "attn_out", "architecture": "topk"},
    }
    profiles: dict[str, Any] = {"heads": profile_heads(model, test, layer)}
    for kind, options in kinds.items():
        start = time.perf_counter()
        training = train_dictionary(model, train, layer=layer, **SIZES, **options)
        seconds = time.perf_counter() - start
        scores = score_dictionary(model, training, test).to_pandas()
        for row in scores[scores["metric"].isin(SHOWN)].to_dict("records"):
            rows.append(
                {
                    "model": name,
                    "layer": layer,
                    "what": kind,
                    "kind": row["dictionary"],
                    "metric": row["metric"],
                    "score": row["score"],
                    "low": row["low"],
                    "high": row["high"],
                    "n": row["n"],
                    "seconds": seconds,
                }
            )
        if kind == "z, topk":
            profiles["features of z"] = score_features(model, training.dictionary, test)
            profiles["untrained features of z"] = score_features(model, training.untrained, test)
    start = time.perf_counter()
    lorsa = train_lorsa(model, train, layer=layer, **LORSA)
    seconds = time.perf_counter() - start
    for row in score_lorsa(model, lorsa, test).to_pandas().to_dict("records"):
        rows.append(
            {
                "model": name,
                "layer": layer,
                "what": "Lorsa",
                "kind": row["layer_kind"],
                "metric": row["metric"],
                "score": row["score"],
                "low": row["low"],
                "high": row["high"],
                "n": row["n"],
                "seconds": seconds,
            }
        )
    profiles["Lorsa heads"] = profile_lorsa(model, lorsa.lorsa, test)
    profiles["untrained Lorsa heads"] = profile_lorsa(model, lorsa.untrained, test)
    found = monosemanticity(profiles)
    for row in means_by_kind(found).to_dict("records"):
        gap = difference_of_kinds(found, row["kind"], "heads") if row["kind"] != "heads" else {}
        groups.append(
            {
                "model": name,
                "layer": layer,
                **row,
                "minus_heads": gap.get("score"),
                "minus_heads_low": gap.get("low"),
                "minus_heads_high": gap.get("high"),
                "p": gap.get("p"),
            }
        )
    return rows, groups


def spanned(row: dict[str, Any], score: str = "score", low: str = "low", high: str = "high") -> str:
    """Format a number with its interval."""
    if row[score] is None:
        return ""
    span = "" if row[low] != row[low] else f" [{row[low]:.3f}, {row[high]:.3f}]"
    return f"{row[score]:.3f}{span}"


def written(rows: list[dict[str, Any]], groups: list[dict[str, Any]]) -> str:
    """Format both tables."""
    lines = [
        "# Sparse dictionaries and Lorsa heads",
        "",
        "`python benchmarks/dictionaries.py MODEL TEXTS` writes this file. Prompts that score are "
        "not those that train. Intervals are 95 % over held-out prompts; a dead share is a count "
        "and has none. `untrained` and `random directions` have as many codes as the trained one.",
        "",
        f"Dictionaries: {SIZES}; Lorsa: {LORSA}; seed 0, one thread.",
        "",
        "| model, layer | what | metric | trained | untrained | random directions | "
        "shuffled decoder | prompts | training s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    keys = list(dict.fromkeys((r["model"], r["layer"], r["what"], r["metric"]) for r in rows))
    for key in keys:
        mine = {
            r["kind"]: r for r in rows if (r["model"], r["layer"], r["what"], r["metric"]) == key
        }
        others = [
            f"{mine[k]['score']:.3f}" if k in mine else ""
            for k in ("untrained", "random directions", "shuffled decoder")
        ]
        one = mine["trained"]
        lines.append(
            f"| {key[0]}, {key[1]} | {key[2]} | {key[3]} | {spanned(one)} | "
            f"{' | '.join(others)} | {one['n']} | {one['seconds']:.0f} |"
        )
    lines += [
        "",
        "Monosemanticity: attention explained by one detector (previous token, current token, "
        "duplicate token, induction) beyond chance, chosen on the other half of the prompts.",
        "",
        "| model, layer | units | number | score | minus heads, paired | p (sign flips) |",
        "|---|---|---|---|---|---|",
    ]
    for row in groups:
        gap = spanned(row, "minus_heads", "minus_heads_low", "minus_heads_high")
        p = "" if row["p"] is None else f"{row['p']:.2g}"
        lines.append(
            f"| {row['model']}, {row['layer']} | {row['kind']} | {row['units']} | "
            f"{spanned(row)} | {gap} | {p} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Measure and write."""
    model = interp.load("bundled:induction")
    rows, groups = measured(
        "bundled:induction",
        model,
        interp.repeats(model, n=120, max_length=24),
        interp.repeats(model, n=24, max_length=24, seed=1000),
        1,
    )
    if arguments:
        folder, texts = map(Path, arguments)
        story = interp.load(str(folder), name="story model")
        given = Prompts.of(json.loads(texts.read_text(encoding="utf-8"))[:220], story)
        cut = Prompts(tuple(ids[:48] for ids in given.ids if len(ids) >= 16), "stories")
        more = measured(
            "story model",
            story,
            cut.part(range(len(cut) - 32)),
            cut.part(range(len(cut) - 32, len(cut))),
            2,
        )
        rows, groups = rows + more[0], groups + more[1]
    (HERE / "dictionaries.md").write_text(written(rows, groups), encoding="utf-8")
    document = {"dictionaries": rows, "monosemanticity": groups}
    (HERE / "dictionaries.json").write_text(as_json(document), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
