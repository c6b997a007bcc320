"""How often heads of random models get a role, and which planted heads get theirs.

    python benchmarks/roles.py [--models 50] [--draws 6] [--keep FOLDER]

Family-wise error: randomly initialised models of the four shapes of `benchmarks/calibration.py` are
scored as `interp score` scores them, and models with any head in a role other than "unclear" are
counted. Planted heads: the role of every planted head and of every other head, over seeds. Writes
benchmarks/roles.json and benchmarks/roles.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import time
from collections import Counter
from pathlib import Path
from typing import Any

import calibration as bench
import torch

import interp
from interp import planted
from interp.core.registry import METRICS
from interp.core.table import HeadTable
from interp.heads.roles.decide import roles
from interp.heads.roles.declared import ROLES

HERE = Path(__file__).parent
PARTS = {"by default": ("detectors", "weights"), "with -m all": tuple(METRICS.groups)}
EXPECTED = {
    "induction": {"induction": "induction", "previous_token": "previous_token"},
    "duplicate_token": {"duplicate_token": "duplicate_token"},
    "sink": {"induction": "induction", "previous_token": "previous_token", "sink": "sink"},
    "positional": {"previous_token": "previous_token", "local_window": "positional"},
    "bystander": {
        "induction": "induction",
        "previous_token": "previous_token",
        "bystander": "unclear",
    },
    "noise": {},
}
"""The role that a planted head of each mechanism should get; all other heads should be unclear."""


def familywise(number: int, draws: int, keep: Path | None) -> list[dict[str, Any]]:
    """Count random models in which any head gets a role."""
    claimed: Counter = Counter()
    who: dict[str, Counter] = {part: Counter() for part in PARTS}
    by_shape: dict[str, Counter] = {part: Counter() for part in PARTS}
    for shape in bench.SHAPES:
        speaking = {need.metric for role in ROLES for need in role.needs}
        bounds = [
            b
            for b in bench.applying(bench.random_model(shape, 0))
            if b.label.partition(":")[0] in speaking
        ]
        every = [
            bench.kept(
                None if keep is None else keep / f"{shape}-{at}.pkl",
                lambda at=at, shape=shape, bounds=bounds: bench.found_by(
                    bench.random_model(shape, at), bounds, 0
                ),
            )
            for at in range(number)
        ]
        scores = [{k: bench.means_by_site(f.values) for k, f in x.items()} for x in every]
        model = bench.random_model(shape, 0)
        for at, mine in enumerate(every):
            others = [scores[(at + k) % number] for k in range(1, draws + 1)]
            made = bench.tables(model, mine, others)
            for part, groups in PARTS.items():
                table = HeadTable.concat(
                    t for label, t in made.items() if METRICS[label].group in groups
                )
                found = [x for x in roles(table).assigned if x.roles]
                claimed[part] += bool(found)
                by_shape[part][shape] += bool(found)
                who[part].update({role for x in found for role in x.roles})
        print(shape, dict(claimed), flush=True)
    models = number * len(bench.SHAPES)
    return [
        {
            "of": part,
            "models": models,
            "claimed": claimed[part],
            "low": bench.between(claimed[part], models)[0],
            "high": bench.between(claimed[part], models)[1],
            "by_shape": {s: by_shape[part][s] for s in bench.SHAPES},
            "roles": dict(who[part]),
        }
        for part in PARTS
    ]


def planted_heads(seeds: int, draws: int) -> list[dict[str, Any]]:
    """Count the planted heads that get their role, and the other heads that get any."""
    rows = []
    for name, expected in EXPECTED.items():
        right: Counter = Counter()
        known: Counter = Counter()
        others = wrong = 0
        for seed in range(seeds):
            built = planted.build(name, seed=seed)
            model = interp.load(built.model, name=f"planted {name} {seed}")
            table = interp.score(model, null_draws=draws, null_cache=False, seed=seed)
            checks = [interp.ablate(model, interp.repeats_task(model))] if expected else []
            for x in roles(table, [c.table for c in checks]).assigned:
                planted_as = built.role(x.layer, x.head)
                if planted_as in expected:
                    known[planted_as] += 1
                    right[planted_as] += x.role == expected[planted_as]
                elif planted_as == "noise":
                    others += 1
                    wrong += bool(x.roles)
        rows.append(
            {
                "model": name,
                "seeds": seeds,
                "heads": dict(known),
                "right": dict(right),
                "noise_heads": others,
                "noise_with_role": wrong,
            }
        )
        print(rows[-1], flush=True)
    return rows


def page(found: dict[str, Any]) -> str:
    """Write the page of figures."""
    out = ["# Roles: how often nothing gets one, and which planted heads get theirs", ""]
    out.append(
        f"{found['models']} randomly initialised models of {bench.TOLD}, {found['draws']} draws "
        "of random weights each. The nominal rate of models with any head in a role is at most "
        "5 %. In brackets the exact binomial 95 % interval."
    )
    out += [
        "",
        "| metrics | models | any head with a role | by shape | roles |",
        "|---|---|---|---|---|",
    ]
    for x in found["familywise"]:
        shapes = ", ".join(f"{k} {v}" for k, v in x["by_shape"].items())
        named = ", ".join(f"{k} {v}" for k, v in x["roles"].items()) or "none"
        out.append(
            f"| {x['of']} | {x['models']} | {x['claimed']} ({x['claimed'] / x['models']:.1%})"
            f" [{x['low']:.1%}, {x['high']:.1%}] | {shapes} | {named} |"
        )
    out += ["", "## Planted heads", ""]
    out.append(
        "Default metrics, with the ablation of single heads on repeated tokens as causal check. "
        "The bystander attends like an induction head and writes nothing that is read; it should "
        "be unclear."
    )
    out += [
        "",
        "| model | seeds | planted heads with the expected role | random heads with a role |",
    ]
    out.append("|---|---|---|---|")
    for x in found["planted"]:
        told = ", ".join(f"{k} {x['right'].get(k, 0)} of {n}" for k, n in x["heads"].items())
        out.append(
            f"| {x['model']} | {x['seeds']} | {told or 'none planted'} |"
            f" {x['noise_with_role']} of {x['noise_heads']} |"
        )
    out += ["", "## The rule", ""]
    out += [f"- **{role.name}**: {role.rule}" for role in ROLES]
    return "\n".join([*out, "", found["made"], ""])


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=50, help="of each shape")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=5, help="of each planted model")
    parser.add_argument("--keep", type=Path, help="keep what is scored here, and go on with it")
    given = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    found: dict[str, Any] = {"models": given.models * len(bench.SHAPES), "draws": given.draws}
    found["planted"] = planted_heads(given.seeds, given.draws)
    found["familywise"] = familywise(given.models, given.draws, given.keep)
    found["made"] = (
        f"Made by `python benchmarks/roles.py --models {given.models} --draws {given.draws} --seeds"
        f" {given.seeds}` with interp {interp.__version__}, torch {torch.__version__}, Python"
        f" {platform.python_version()}; {time.monotonic() - began:.0f} s with what --keep had."
    )
    (HERE / "roles.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (HERE / "roles.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
