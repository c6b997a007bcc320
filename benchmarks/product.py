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

from benchmarks.product_beside import beside_all
from benchmarks.product_cases import build, cases, size_of
from benchmarks.product_measure import measure, threads
from benchmarks.product_memory import peak
from benchmarks.product_parts import parts_of
from benchmarks.product_report import report

ENOUGH = 30.0  # seconds up to which quick rounds are repeated more often than asked


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
        "torch": torch.__version__, "transformers": transformers.__version__,
        "python": platform.python_version(), "machine": platform.machine(),
        "processors": os.cpu_count(), "load": os.getloadavg()[0] if os.name == "posix" else None,
        "threads": threads(), "quick": given.quick, "note": given.note,
    }  # fmt: skip


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
