"""Test the claims of the papers of the literature: what was measured, and whether each held.

    python benchmarks/paper_claims.py loki           tests the claim of one paper, and prints it
    python benchmarks/paper_claims.py                tests what has no result in the folder; resumes
    python benchmarks/paper_claims.py --limit 600    starts no claim after 600 seconds
    python benchmarks/paper_claims.py --again        tests those that have a result, too
    python benchmarks/paper_claims.py --update       puts results into this repository

Results go into a folder of the user's, a file for each claim (`--out`). A claim is a sentence of
`interp/core/literature.toml`; its test stands in `benchmarks/papers` and returns numbers, whose
words, sides and bounds are written in `paper_claims.json` before it is run. With `--update` results
go there, too, and from there to docs/literature.md; the verdict goes into the entry of the claim;
what is tested then is what has no result of the present code. A claim holds where the whole 95 %
interval of each of its numbers is on the claimed side of its bound.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import sys
import time
import traceback
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from papers import BROKEN, curves  # noqa: E402
from papers.finding import CLAIMS, Claim  # noqa: E402

from benchmarks.paper_findings import (  # noqa: E402
    ENTRIES,
    MEASURED,
    Tested,
    results,
    with_verdict,
)
from benchmarks.rounded import as_json  # noqa: E402
from interp.core.errors import OptionError  # noqa: E402
from interp.core.files import write_atomically  # noqa: E402
from interp.core.literature import find_papers  # noqa: E402
from training.alike import NOW, TRAINING  # noqa: E402

OUT = curves.KEPT.parent


def processor() -> float:
    """Return the processor time of this process and its children."""
    return sum(os.times()[:4])


def tested(claim: Claim) -> Tested:
    """Run one test; the time of training counts, also where the weights had been kept."""
    TRAINING.clear()
    before = processor() - sum(NOW.values())
    findings = claim.measured()
    seconds = processor() - sum(NOW.values()) - before
    training = sum(TRAINING.values()) + sum(host.training for host in claim.hosts)
    return Tested(claim.models, findings, round(seconds, 2), round(training, 2), claim.code)


def keep(title: str, result: Tested, out: Path | None) -> Path:
    """Put one result into a folder, or into the repository beside what other runs put there."""
    file = MEASURED if out is None else file_of(title, out)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    with file.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = json.loads(file.read_text(encoding="utf-8") or "{}") | {title: result.as_json()}
        # seven digits keep the ends of intervals apart
        write_atomically(file, as_json(dict(sorted(kept.items())), ".7g").encode())
        if out is None:
            write_atomically(ENTRIES, with_verdict(title, result.verdict, result.models).encode())
    return file


def file_of(title: str, out: Path) -> Path:
    """Return the file of the result of a claim in a folder of the user's."""
    return out / f"{re.sub(r'[^a-z0-9]+', '-', title.casefold()).strip('-')[:80]}.json"


def chosen(text: str | None, again: bool, out: Path | None) -> list[Claim]:
    """Return the claims to run: of one paper, or those without a result of the present code."""
    if text:
        try:
            named = find_papers(text)
        except OptionError as error:
            raise SystemExit(f"paper_claims: {error}") from error
        if not any(p.title in CLAIMS for p in named):
            raise SystemExit("\n".join(f"{p.title}: {p.why_no_verdict}" for p in named))
        return [CLAIMS[p.title] for p in named if p.title in CLAIMS]
    if out is not None:
        return [c for c in CLAIMS.values() if again or not file_of(c.title, out).exists()]
    have = {title: result.code for title, result in results().items()}
    return [c for c in CLAIMS.values() if again or have.get(c.title) != c.code]


def main() -> int:
    """Run the command; the exit code is 1 where a test could not be run."""
    parser = argparse.ArgumentParser(description="Test the claims of papers.")
    parser.add_argument("paper", nargs="?", help="part of a title")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--again", action="store_true", help="also those with a result")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of results; default: {OUT}")
    parser.add_argument("--update", action="store_true", help="put results into the repository")
    given = parser.parse_args()
    torch.set_num_threads(1)
    curves.KEPT = given.out.expanduser() / curves.KEPT.name
    out: Path | None = None if given.update else given.out.expanduser()
    start, waiting, failed = time.perf_counter(), chosen(given.paper, given.again, out), []
    while waiting and time.perf_counter() - start <= given.limit:
        claim = waiting.pop(0)
        try:
            result = tested(claim)
        except Exception:  # of one claim: the others are still tested
            traceback.print_exc()
            failed.append(claim.title)
            continue
        print(f"{claim.title}\n{result}\n(in {keep(claim.title, result, out)})\n", flush=True)
    for name, error in BROKEN.items():
        print(f"benchmarks/papers/{name}.py cannot be imported:\n{error}", file=sys.stderr)
    for why, titles in (
        (f"not started within {given.limit:g} s", [c.title for c in waiting]),
        ("could not be tested", failed),
    ):
        if titles:
            print(f"{len(titles)} claims {why}: {'; '.join(titles)}", file=sys.stderr)
    return int(bool(failed or BROKEN))


if __name__ == "__main__":
    sys.exit(main())
