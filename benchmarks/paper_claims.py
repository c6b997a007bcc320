"""Test the claims of the papers of the literature: what was measured, and whether each held.

    python benchmarks/paper_claims.py                runs what has no result yet; resumes
    python benchmarks/paper_claims.py loki           runs the claim of one paper, and prints it
    python benchmarks/paper_claims.py --limit 600    starts no claim after 600 seconds
    python benchmarks/paper_claims.py --again        runs those that have a result, too

A claim is a sentence of `interp/core/literature.toml`; its test stands in `benchmarks/papers`. The
results go to `paper_claims.json`, one claim at a time, and from there to docs/literature.md; the
verdict goes into the entry of the claim, too. A number's side and bound are written in the test
before it is run; a claim holds where the whole 95 % interval of each of its numbers is on the
claimed side of its bound.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from papers.finding import CLAIMS, Claim  # noqa: E402

from benchmarks.paper_findings import ENTRIES, MEASURED, Finding, Tested, with_verdict  # noqa: E402
from benchmarks.rounded import as_json  # noqa: E402
from interp.core.errors import OptionError  # noqa: E402
from interp.core.files import write_atomically  # noqa: E402
from interp.core.literature import find_papers  # noqa: E402


def tested(claim: Claim) -> Tested:
    """Run one test."""
    before = sum(os.times()[:4])  # of this process and its children
    found = claim.test()
    findings = (found,) if isinstance(found, Finding) else tuple(found)
    return Tested(claim.models, findings, round(sum(os.times()[:4]) - before, 2))


def keep(title: str, result: Tested) -> None:
    """Put one result into the file, beside what other runs put there meanwhile."""
    with MEASURED.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = json.loads(MEASURED.read_text(encoding="utf-8"))
        kept[title] = result.as_json()
        text = as_json(dict(sorted(kept.items())), ".7g")  # keeps the ends of intervals apart
        write_atomically(MEASURED, text.encode())
        write_atomically(ENTRIES, with_verdict(title, result.verdict, result.models).encode())


def chosen(text: str | None, again: bool) -> list[Claim]:
    """Return the claims to run: of one paper, or those without a result."""
    if text:
        try:
            named = find_papers(text)
        except OptionError as error:
            raise SystemExit(f"paper_claims: {error}") from error
        if not any(p.title in CLAIMS for p in named):
            raise SystemExit("\n".join(f"{p.title}: {p.not_testable}" for p in named))
        return [CLAIMS[p.title] for p in named if p.title in CLAIMS]
    have: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return [c for c in CLAIMS.values() if again or c.title not in have]


def main() -> int:
    """Run the command; the exit code is 1 where a test could not be run."""
    parser = argparse.ArgumentParser(description="Test the claims of papers.")
    parser.add_argument("paper", nargs="?", help="part of a title")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--again", action="store_true", help="also those with a result")
    given = parser.parse_args()
    torch.set_num_threads(1)
    start, waiting, failed = time.perf_counter(), chosen(given.paper, given.again), []
    while waiting and time.perf_counter() - start <= given.limit:
        claim = waiting.pop(0)
        try:
            result = tested(claim)
        except Exception:  # of one claim: the others are still tested
            traceback.print_exc()
            failed.append(claim.title)
            continue
        keep(claim.title, result)
        print(f"{claim.title}\n{result}\n", flush=True)
    for why, titles in (
        (f"not started within {given.limit:g} s", [c.title for c in waiting]),
        ("could not be tested", failed),
    ):
        if titles:
            print(f"{len(titles)} claims {why}: {'; '.join(titles)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
