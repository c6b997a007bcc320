"""How often claims of single analyses are made where nothing is there, and coverage of intervals.

    python benchmarks/claims.py [--draws 100] [--only WORD]

Each case of claims_text.py and claims_made.py draws made data or random models without the effect,
calls the public function, and counts the draws in which it says that something is there. Cases of
intervals have a known truth and count how many 95 % intervals contain it. Writes
benchmarks/claims.json and .md; with --only it prints and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import claims_made
import claims_text
import numpy as np
import torch
from calibration import between
from claims_case import Case

import interp
from interp.core.intervals import fraction_interval

HERE = Path(__file__).parent
NOMINAL = 0.05
CASES: tuple[Case, ...] = (*claims_made.CASES, *claims_text.CASES)


def measured(case: Case, draws: int) -> dict[str, Any]:
    """Run one case on several draws."""
    began, number = time.perf_counter(), max(10, round(draws * case.share))
    every = [np.asarray(case.draw(seed), dtype=float).ravel() for seed in range(number)]
    told: dict[str, Any] = {
        "call": case.call,
        "claim": case.claim,
        "nothing": case.nothing,
        "kind": case.kind,
        "draws": number,
    }
    error = (NOMINAL * (1 - NOMINAL) / number) ** 0.5
    if case.kind == "claim":  # one claim per draw: any of its values
        hits = int(sum(bool(x.any()) for x in every))
        low, high = between(hits, number)
        told |= {"hits": hits, "rate": hits / number, "low": low, "high": high}
        told["off"] = hits / number > NOMINAL + 2 * error
    else:
        each = np.array([x[np.isfinite(x)].mean() for x in every if np.isfinite(x).any()])
        mean, sem = float(each.mean()), float(each.std(ddof=1) / len(each) ** 0.5)
        # several intervals of one draw are not independent, so n is the number of draws
        low, high = fraction_interval(mean, len(each))
        told |= {"coverage": mean, "sem": sem, "low": low, "high": high}
        told["intervals"] = int(sum(np.isfinite(x).sum() for x in every))
        told["off"] = mean < 1 - NOMINAL - 2 * (sem or error)
    told["why"] = case.why
    told["seconds"] = round(time.perf_counter() - began, 1)
    return told


def lines(found: dict[str, Any], kind: str) -> list[list[str]]:
    """Return the rows of the table of claims or of intervals."""
    out = []
    for x in found["rows"]:
        if x["kind"] != kind:
            continue
        told = [f"`{x['call']}`", x["claim"], x["nothing"], str(x["draws"])]
        between_ends = f"[{x['low']:.3f}, {x['high']:.3f}]"
        if kind == "claim":
            rate = x["rate"]
            error = (rate * (1 - rate) / x["draws"]) ** 0.5
            share = f"{rate:.3f} ± {error:.3f}" if 0 < x["hits"] < x["draws"] else f"{rate:.0f}"
            told += [str(x["hits"]), f"{share} {between_ends}"]
        else:
            share = f"{x['coverage']:.3f} ± {x['sem']:.3f}" if x["sem"] else "all"
            told += [str(x["intervals"]), f"{share} {between_ends}"]
        out.append(told)
    return out


def departures(found: dict[str, Any]) -> list[str]:
    """Return a sentence for each rate that is worse than nominal by more than two errors."""
    out = []
    for x in found["rows"]:
        if x["off"]:
            kind = "claimed in" if x["kind"] == "claim" else "covered in"
            rate = x["rate"] if x["kind"] == "claim" else x["coverage"]
            reason = f": {x['why']}" if x["why"] else ""
            out.append(f"`{x['call']}`, {x['claim']} ({x['nothing']}): {kind} {rate:.1%}{reason}")
    return out or ["No rate is worse than nominal by more than two standard errors."]


def page(found: dict[str, Any]) -> str:
    """Return the tables as Markdown."""
    out = ["# Claims where nothing is there, and coverage of intervals", ""]
    out += [
        "Draws in which anything is called, at 5 % unless the claim says otherwise: their number,"
        " their share ± its binomial standard error, and the exact 95 % interval.",
        "",
        "| call | claim | where nothing is there | draws | called | share |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(line)} |" for line in lines(found, "claim")),
        "",
        "Share of 95 % intervals that contain the truth, ± its standard error over draws, and"
        " Wilson's interval of as many draws.",
        "",
        "| call | interval | truth | draws | intervals | covered |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(line)} |" for line in lines(found, "interval")),
    ]
    out += ["", *(f"- {one}" for one in departures(found))]
    return "\n".join([*out, "", found["made"]]) + "\n"


def main() -> None:
    """Measure every case, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--only", default="", help="run cases with this word in their call")
    given = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", category=RuntimeWarning)
    began, rows = time.monotonic(), []
    for case in CASES:
        if given.only in f"{case.call} {case.claim}":
            rows.append(measured(case, given.draws))
            shown = {k: v for k, v in rows[-1].items() if k not in ("kind", "nothing")}
            print(shown, flush=True)
    if given.only:
        return
    made = (
        f"Made by `python benchmarks/claims.py --draws {given.draws}` with interp"
        f" {interp.__version__}, torch {torch.__version__}, Python {platform.python_version()};"
        f" {time.monotonic() - began:.0f} s."
    )
    found = {"rows": rows, "made": made}
    (HERE / "claims.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (HERE / "claims.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
