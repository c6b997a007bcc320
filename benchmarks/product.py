"""What the user types, over the plain forward of the same model: `python -m benchmarks.product`.

    python -m benchmarks.product --memory --peers --parts --beside
    python -m benchmarks.product --case 'gpt2 score' --rounds 9
    python -m benchmarks.product --case nulls --keep -o benchmarks

`interp.score(model, eleven attention metrics, prompts)` without nulls and with them, on models with
random weights whose shapes are those of well-known families. Each run stands between two plain
forwards of the same module in the same process (logits of the last token alone, the least that a
forward may do), and its ratio is taken to their mean; the ratio to forwards that compute all logits
stands beside. Tables show the median ratio by wall time and by processor time with the middle half
of all. With nulls, it is over as many plain forwards as the nulls need, each round with a new seed;
drawing random weights is timed apart and taken off. Peers (`--peers`) are run beside in the same
process. Peak memory (`--memory`) is that of processes of their own. `--parts` times `interp score
FOLDER -o DIR` as a process, part by part; `--beside` times weights metrics, loading and a wrong
argument. Writes product.md and product.json, anew after each case;
`--keep` replaces only what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks.product_cases import build, cases, size_of
from benchmarks.product_measure import beside_all, measure, peak, threads
from benchmarks.product_parts import parts_of

ENOUGH = 30.0  # seconds up to which quick rounds are repeated more often than asked


def report(found: dict[str, Any]) -> str:
    """The whole page."""
    about, rows = found["about"], found["rows"]
    told = about["threads"]
    lines = [
        "# The price of a score over a plain forward",
        "",
        f"`interp.score(model, eleven attention metrics, prompts)` with random weights, float32, "
        f"over plain forwards of the same module in the same process, which compute the logits of "
        f"the last token alone. Medians of interleaved rounds, each over the mean of the plain "
        f"runs before and after it, with the middle half of the ratios (all, of three rounds or "
        f"fewer). torch {about['torch']}, transformers {about['transformers']}, Python "
        f"{about['python']}, {about['machine']}, {about['processors']} processors, "
        f"{told['torch']} threads of torch and {told['numba']} of numba unless a row says "
        f"otherwise. Made by `python -m benchmarks.product`.",
        "",
    ]
    if about["note"]:
        lines += [about["note"], ""]
    if about["quick"]:
        lines += ["**Tiny shapes and one round: these are no measurements.**", ""]
    failed = [row for row in rows if "failed" in row]
    timed = [row for row in rows if "failed" not in row]
    for asked, title in (("score", "Without nulls"), ("nulls", "With nulls")):
        if mine := [row for row in timed if row["asked"] == asked]:
            lines += [f"## {title}", "", *_times(mine, nulls=asked == "nulls"), ""]
    if mine := [row for row in timed if row.get("growth")]:
        lines += ["## Peak memory", "", *_memory(mine), ""]
    if mine := [row for row in timed if row.get("peers")]:
        lines += ["## Other tools beside", "", *_peers(mine), ""]
    if found.get("parts"):
        lines += [
            "## Time by part of `interp score FOLDER -o DIR`",
            "",
            *_parts(found["parts"]),
            "",
        ]
    if found.get("beside"):
        lines += ["## Beside", "", *_beside(found["beside"]), ""]
    if failed:
        lines += ["## Not measured", ""]
        lines += [f"- {_named(row)}: {row['failed']}" for row in failed] + [""]
    return "\n".join(lines)


def _named(row: dict[str, Any]) -> str:
    size = f"{row['prompts']} x {row['tokens']:,}" if row["prompts"] > 1 else f"{row['tokens']:,}"
    return f"{row['title']}, {size} tokens, {row['layers']} layers"


def _ratio(triple: list[float]) -> str:
    middle, low, high = triple
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _bound(row: dict[str, Any]) -> str:
    if row["bound"] is None:
        return "-"
    told = _met(row)
    if row.get("met_over_all_logits") and not row["met"]:
        told = "met over all logits only"
    return f"{row['bound']:.2f}, {told}"


def _over_all(row: dict[str, Any]) -> str:
    over = row.get("over_all_logits")
    return "-" if over is None else f"{over['clock']:.2f}, processor {over['processor']:.2f}"


def _engine(row: dict[str, Any]) -> str:
    return f"{row['engine']} (asked: {row['engine_asked']})"


def _times(rows: list[dict[str, Any]], *, nulls: bool) -> list[str]:
    extra = " drawing random weights, s | forwards |" if nulls else ""
    lines = [
        "A bound is met if wall time and processor time both are at most it. *Over all logits*: "
        "the ratio of the medians to forwards that compute the logits of all tokens.",
        "",
        f"| model and prompts | over | at most | wall time | processor time | over all logits |"
        f"{extra} seconds | first call, s | rounds | threads | engine |",
        "|---|" + "---|" * (10 + 2 * nulls),
    ]
    for row in rows:
        cells = [_named(row), row["beside"], _bound(row)]
        cells += [_ratio(row["clock"]), _ratio(row["processor"]), _over_all(row)]
        cells += [f"{row['drawing_seconds']:.2f}", str(row["forwards"])] if nulls else []
        cells += [f"{row['seconds']:.3g}", f"{row['first_call_seconds']:.3g}", str(row["rounds"])]
        cells += [" and ".join(map(str, row["threads"].values())), _engine(row)]
        lines.append(f"| {' | '.join(cells)} |")
    if nulls:
        lines += [
            "",
            "Ratios are over as many plain forwards as the nulls need, each round with a new seed; "
            "drawing random weights is taken off, from the seconds as well.",
        ]
    return lines


def _memory(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "Growth of the peak in MiB, each in processes of their own, after a short run has loaded "
        "everything.",
        "",
        "| model and prompts | plain forward | interp.score | ratio | at most |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        grown, ratio = row["growth"], row["growth_ratio"]
        told = [f"{grown[m]:,.1f}" if m in grown else "-" for m in ("plain", "score")]
        told.append("-" if ratio is None else f"{ratio:.2f}")
        most = row["memory"]
        if most is None or ratio is None:
            told.append("-" if most is None else f"{most:.2f}")
        else:
            told.append(f"{most:.2f}, {'met' if ratio <= most else 'missed'}")
        lines.append(f"| {_named(row)} | {' | '.join(told)} |")
    return lines


def _peers(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "Four statistics (previous token, first token, induction, entropy) over the same plain "
        "forward, beside the eleven of `interp.score`.",
        "",
        "| model and prompts | tool | wall time | processor time | peak, MiB |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        grown = row.get("growth", {})
        ours = {"title": "interp.score, eleven metrics"} | row
        for key, peer in {"score": ours, **row["peers"]}.items():
            peak = f"{grown[key]:,.0f}" if key in grown else "-"
            told = f"{peer['failed']} | -" if "failed" in peer else None
            told = told or f"{_ratio(peer['clock'])} | {_ratio(peer['processor'])}"
            title = "interp.score, eleven metrics" if key == "score" else peer["title"]
            lines.append(f"| {_named(row)} | {title} | {told} | {peak} |")
    return lines


def _parts(parts: dict[str, Any]) -> list[str]:
    if "failed" in parts:
        return [f"Not measured: {parts['failed']}"]
    lines = [
        f"GPT-2 small's shape ({parts['layers']} layers) in a folder, all default metrics with "
        f"nulls, as a process: {parts['clock']:.1f} s, processor {parts['processor']:.1f} s "
        f"(medians of {parts['rounds']}). No part but forward and load should be above a tenth.",
        "",
        "| part | seconds | processor | share | calls | |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in parts["parts"].items():
        mark = "" if part["met"] else "above a tenth"
        lines.append(
            f"| {name} | {part['clock']:.2f} | {part['processor']:.2f} | {part['share']:.1%} | "
            f"{part['calls'] or '-'} | {mark} |"
        )
    if parts["missing"]:
        lines += ["", f"Not found, so not timed: {', '.join(parts['missing'])}."]
    return lines


def _beside(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "Weights metrics are without nulls, on GPT-2 small's shape with its vocabulary; seconds of "
        "a command are processor time of the process.",
        "",
        "| what | over | at most | wall time | processor time | seconds | rounds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        bound = _bound(row) if row["over"] else f"{row['bound']:.2f} s, {_met(row)}"
        ratios = [_ratio(row[kind]) if kind in row else "-" for kind in ("clock", "processor")]
        told = [row["what"], row["over"] or "-", bound, *ratios]
        lines.append(f"| {' | '.join(told)} | {row['seconds']:.3g} | {row['rounds']} |")
    return lines


def _met(row: dict[str, Any]) -> str:
    return "met" if row["met"] else "missed"


def time_by_part(given: argparse.Namespace) -> dict[str, Any]:
    """`interp score` of a folder with GPT-2 small's shape, all default metrics, as a process."""
    case = cases(long=False)[0]
    size = size_of(case, given.layers, quick=given.quick)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "gpt2-small-shaped"
        build(case.shape, size, quick=given.quick).save_pretrained(source)
        found = parts_of(
            ["score", str(source), "-o", "{out}", "-q"], min(3, given.rounds), given.threads
        )
    return {"layers": size.layers, "threads": threads()} | found


def about(given: argparse.Namespace) -> dict[str, Any]:
    """What the numbers depend on."""
    import transformers

    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0] if os.name == "posix" else None,
        "threads": threads(),
        "quick": given.quick,
        "note": given.note,
    }


def options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--rounds", type=int, default=7, help="at least; more where they are quick")
    parser.add_argument("--long", action="store_true", help="16,384 tokens as well")
    parser.add_argument("--peers", action="store_true", help="other tools beside")
    parser.add_argument("--memory", action="store_true", help="peak memory, in own processes")
    parser.add_argument("--parts", action="store_true", help="time by part of `interp score`")
    parser.add_argument("--beside", action="store_true", help="weights metrics, loading, errors")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, one round: a test")
    parser.add_argument("--engine", default="auto", help="engine of interp.score")
    parser.add_argument("--layers", type=int, help="of all models; by length unless given")
    parser.add_argument("--threads", type=int, help="as many as torch takes, unless given")
    parser.add_argument("--keep", action="store_true", help="keep rows that are not measured")
    parser.add_argument("--note", default="", help="a sentence about the machine")
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks"))
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: it must be at least 1")
    given.rounds, given.enough = (1, 0.0) if given.quick else (given.rounds, ENOUGH)
    try:
        given.chosen = [c for c in cases(long=given.long) if re.search(given.case, c.name)]
    except re.error as error:
        parser.error(f"--case {given.case}: not a regular expression ({error})")
    if not given.chosen and not (given.parts or given.beside):
        parser.error(f"--case {given.case} matches no case; --list prints their names")
    return given


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints and writes."""
    given = options(arguments)
    warnings.simplefilter("ignore")
    if given.threads:
        import numba

        torch.set_num_threads(given.threads)
        numba.set_num_threads(min(given.threads, numba.get_num_threads()))
    if given.peak:
        name, method = given.peak
        print(peak(name, method, given))
        return
    if given.list:
        print("\n".join(case.name for case in given.chosen))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    figures = given.out / "product.json"
    found: dict[str, Any] = {"rows": [], "parts": None}
    if given.keep and figures.exists():
        found = json.loads(figures.read_text())
    found["about"] = about(given)
    order = [case.name for case in cases(long=True)]

    def write() -> None:
        figures.write_text(json.dumps(found, indent=1) + "\n")
        (given.out / "product.md").write_text(report(found))

    for case in given.chosen:
        row = measure(case, given)
        rows = [other for other in found["rows"] if other["case"] != case.name]
        found["rows"] = sorted([*rows, row], key=lambda each: order.index(each["case"]))
        shown = row.get("failed") or f"{row['clock'][0]:.2f}x, processor {row['processor'][0]:.2f}x"
        print(f"{case.name:22} {shown} (at most {case.bound})", flush=True)
        write()
    if given.parts:
        found["parts"] = time_by_part(given)
        write()
    if given.beside:
        found["beside"] = beside_all(min(3, given.rounds), quick=given.quick)
        write()
    print((given.out / "product.md").read_text())


if __name__ == "__main__":
    main()
