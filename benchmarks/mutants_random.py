"""Mistakes drawn at random over the package: how many of them do the nearest tests notice?

    python -m benchmarks.mutants_random draw drawn.json --n 400 --seed 43
    python -m benchmarks.mutants_random judge drawn.json --tree COPY --out judged.json
    python -m benchmarks.mutants_random draw drawn.json --n 60 --seed 60 --about statistics
    python -m benchmarks.mutants_random table judged.json --out mutants_statistics.md

Needs cosmic-ray, which no other script uses. A place (an operator, a comparison, a number, a
decorator, ...) is drawn uniformly over `interp/` and `kernels/`, then one of the changes that
cosmic-ray knows for it. The test files nearest to the changed line are run on a copy that has the
change: those that mirror its folder and name, and those that mention the function around it. A
mutant that they do not end in time counts as noticed, and as `timeout`. Places in annotations and
`strict` of `zip` are left out, since nothing reads them, and so are changes between kinds of
operators, such as + to <<, which fail by type alone. `--about statistics` draws among statistics,
intervals and exports alone (see `counted`). A mutant that states its tests in the file is judged by
these instead of the nearest. What survives here may still be noticed by other tests: the share of
noticed mutants is a lower bound.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("interp", "kernels/interp_kernels")
ARITHMETIC = {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"}
BITWISE = {"BitAnd", "BitOr", "BitXor", "LShift", "RShift"}
FILES = 6  # test files that are run for a mutant
SECONDS = 120  # of processor time
WHOLE = re.compile(
    r"core/(statistics|standard_errors|intervals|clusters|rank_statistics"
    r"|files|result_files|table_files|columns)\.py"
    r"|exports\.py|circuit_formats\.py|tracer_json\.py|mib\.py|headvis\.py"
    r"|cache/(budgets|patterns|plan_result|press)\.py|stored_arrays\.py"
)
"""Files that are statistics or a file format from end to end."""
NAMED = re.compile(
    r"interval|bounds|(^|_)(p|ps|sem|ends|band)$|standard_error|quantile|bootstrap|redraw|auroc"
    r"|reliability|stability|(^|_)(graphml|dot|mermaid|to_svg|to_dict|to_networkx|export)$"
)
"""Names of functions that return an interval, an error or a p value, or write a format."""
STATISTIC = re.compile(
    r"\bsem\b|ddof|interval|tails\b|sign_flip|holm|benjamini|quantile|cluster_summary|half_width"
    r"|auroc|prediction_band|null_spread|redraw|stats\b|\bp_of_|_ps?\("
)
"""What a statement elsewhere contains that computes one of them."""


@dataclass
class Drawn:
    """One change of one line, and what became of it."""

    file: str
    line: int
    column: int
    operator: str
    occurrence: int
    before: str
    after: str = ""
    outcome: str = ""  # killed, timeout or survived
    by: str = ""
    tests: list[str] = field(default_factory=list)
    note: str = ""  # why a survivor changes nothing, or what else notices it


def sensible(operator: str) -> bool:
    """Whether a change stays within one kind of operator."""
    name = operator.removeprefix("core/")
    if name.startswith("Variable"):  # these need the name of a variable
        return False
    if name.startswith("ReplaceBinaryOperator_"):
        pair = set(name.split("_")[1:])
        return pair <= ARITHMETIC or pair <= BITWISE
    if name.startswith("ReplaceComparisonOperator_"):
        one, other = name.split("_")[1:]
        return ("Is" in (one[:2], other[:2])) == (one[:2] == other[:2] == "Is")
    return True


def annotated(source: str) -> set[tuple[int, int]]:
    """The places (line, column) that decide nothing: annotations, and `strict` of `zip`."""
    inside: set[tuple[int, int]] = set()
    for node in ast.walk(ast.parse(source)):
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        parts += [node.value] if isinstance(node, ast.keyword) and node.arg == "strict" else []
        for part in (p for p in parts if isinstance(p, ast.AST)):
            for x in ast.walk(part):
                if isinstance(x, ast.expr) and x.end_col_offset is not None:
                    inside |= {(x.lineno, c) for c in range(x.col_offset, x.end_col_offset + 1)}
    return inside


def places(root: Path, about: str) -> dict[tuple[str, int, int], list[tuple[str, int]]]:
    """Every place that can be changed, with the operators and their occurrence numbers."""
    import parso
    from cosmic_ray.plugins import get_operator, operator_names

    found: dict[tuple[str, int, int], list[tuple[str, int]]] = defaultdict(list)
    operators = [(name, get_operator(name)()) for name in operator_names() if sensible(name)]
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*.py")):
        source = path.read_text("utf-8")
        file = path.relative_to(root).as_posix()
        wanted = counted(file, source) if about == "statistics" else None
        if wanted == set():
            continue
        tree, skipped = parso.parse(source), annotated(source)
        nodes = list(walk(tree))
        for name, operator in operators:
            occurrence = 0
            for node in nodes:
                for start, _ in operator.mutation_positions(node):
                    if start not in skipped and (wanted is None or start[0] in wanted):
                        found[file, *start].append((name, occurrence))
                    occurrence += 1
    return found


def counted(file: str, source: str) -> set[int]:
    """The lines of a file that compute statistics or intervals, or that write exports."""
    if WHOLE.search(file):
        return set(range(1, source.count("\n") + 2))
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        function = isinstance(node, ast.FunctionDef)
        statement = isinstance(node, ast.Assign | ast.AugAssign | ast.Return | ast.Expr)
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if (function and NAMED.search(node.name)) or (
            statement and not text and STATISTIC.search(ast.unparse(node))
        ):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def walk(node) -> Iterator:
    """Every node of a parso tree, in the order in which cosmic-ray visits it."""
    yield node
    for child in getattr(node, "children", ()):
        yield from walk(child)


def draw(root: Path, n: int, seed: int, about: str) -> list[Drawn]:
    """Draw `n` places and a change of each."""
    rng, found = random.Random(seed), places(root, about)
    print(f"seed {seed}: {n} of {len(found)} places")
    chosen = []
    for file, line, column in rng.sample(sorted(found), n):
        operator, occurrence = rng.choice(found[file, line, column])
        before = (root / file).read_text("utf-8").splitlines()[line - 1].strip()
        chosen.append(Drawn(file, line, column, operator, occurrence, before))
    return chosen


def around(source: str, line: int) -> set[str]:
    """The names of the functions and classes that a line is part of."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    within = (x for x in ast.walk(ast.parse(source)) if isinstance(x, kinds))
    return {x.name for x in within if x.lineno <= line <= (x.end_lineno or x.lineno)}


def nearest(tree: Path, file: str, line: int) -> list[str]:
    """The test files nearest to a line, the nearest first, and the contract tests of its name."""
    parts = Path(file).with_suffix("").parts
    folder, stem = parts[1:-1], parts[-1].strip("_")
    folder = ("kernels",) if parts[0] == "kernels" else folder
    names = {n for n in around((tree / file).read_text("utf-8"), line) if len(n) > 4}
    ranked = []
    for path in sorted((tree / "tests").rglob("test_*.py")):
        text, own = path.read_text("utf-8"), path.relative_to(tree / "tests").parts[:-1]
        points = 3 * sum(a == b for a, b in zip(folder, own, strict=False)) - len(own)
        points += 6 * (stem in path.stem) + 5 * (len(stem) > 5 and stem in text)
        points += 5 * (".".join(parts) in text) + 4 * sum(n in text for n in names)
        ranked.append((-points, path.relative_to(tree).as_posix()))
    return [path for _, path in sorted(ranked)[:FILES]]


def run(tree: Path, tests: list[str], seconds: int) -> tuple[str, str]:
    """Run tests in a forked process: the outcome, and the test that failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))  # a busy machine is no sign
        os.close(reader)
        os.chdir(tree)
        sys.path[:0] = [str(tree), str(tree / "kernels")]
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        import pytest

        class Failed:
            def pytest_runtest_logreport(self, report) -> None:
                if report.failed:
                    os.write(writer, report.nodeid.encode()[:300] + b"\n")

        options = [
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-W",
            "ignore:Module already imported",
        ]
        code = pytest.main([*options, "-m", "not slow and not gpu", *tests], plugins=[Failed()])
        os._exit(int(code))
    os.close(writer)
    deadline = time.monotonic() + 10 * seconds
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    if done[0] == 0:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(reader) as told:
        by = told.readline().strip()
    if done[0] == 0 or os.WIFSIGNALED(done[1]):
        return "timeout", by
    return ("survived" if os.waitstatus_to_exitcode(done[1]) in (0, 5) else "killed"), by


def judge(drawn: Drawn, tree: Path, files: int = FILES) -> Drawn:
    """Make one mutant in `tree`, run its tests and put the file back."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    path = tree / drawn.file
    source = path.read_bytes()
    changed = mutate_code(source, get_operator(drawn.operator)(), drawn.occurrence)
    assert changed is not None
    drawn.after = changed.splitlines()[drawn.line - 1].strip()
    drawn.tests = drawn.tests or nearest(tree, drawn.file, drawn.line)[:files]
    name = path.stem.strip("_")
    try:
        path.write_text(changed, "utf-8")
        drawn.outcome, drawn.by = run(tree, drawn.tests, SECONDS)
        if drawn.outcome == "survived" and "/heads/" in drawn.file:
            drawn.outcome, drawn.by = run(tree, ["tests/contract", "-k", name], SECONDS)
    finally:
        path.write_bytes(source)
    return drawn


def table(mutants: list[Drawn]) -> str:
    """A line of Markdown for each mutant: what was changed, and what became of it."""
    lines = [
        "| file | before | after | outcome | noticed by, or why not |",
        "|---|---|---|---|---|",
    ]
    for x in sorted(mutants, key=lambda x: (x.file, x.line)):
        before, after = (f"`{text}`".replace("|", "\\|") for text in (x.before, x.after))
        by = f"`{x.by.removeprefix('tests/')}`" if x.by else x.note
        lines.append(f"| `{x.file}:{x.line}` | {before} | {after} | {x.outcome} | {by} |")
    return "\n".join(lines) + "\n"


def preload() -> None:
    """Import what takes long once, and nothing of the package: each mutant runs in a fork."""
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
    }
    for name in (
        "torch",
        "transformers",
        "numba",
        "pandas",
        "plotly.graph_objects",
        "scipy.stats",
        "sklearn.metrics",
        "pytest",
    ):
        importlib.import_module(name)


def main() -> None:
    """Draw mutants into a file, judge those of a file, or write what became of each as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("draw", "judge", "table"))
    parser.add_argument("drawn", type=Path)
    parser.add_argument("--n", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--about", choices=("all", "statistics"), default="all")
    parser.add_argument("--files", type=int, default=FILES, help="nearest test files per mutant")
    parser.add_argument("--share", default="0/1", help="I/N: every N-th mutant from the I-th")
    parser.add_argument("--tree", type=Path, default=ROOT, help="a copy that may be changed")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    if chosen.what == "draw":
        write(chosen.drawn, draw(chosen.tree, chosen.n, chosen.seed, chosen.about))
        return
    if chosen.what == "table":
        chosen.out.write_text(table(read(chosen.drawn)), "utf-8")
        return
    index, shares = map(int, chosen.share.split("/"))
    preload()
    control, by = run(chosen.tree, ["tests/core/test_statistics.py"], SECONDS)
    assert control == "survived", f"the tests fail without a mutant: {by}"
    finished = read(chosen.out) if chosen.out.exists() else []  # goes on where it was stopped
    for drawn in read(chosen.drawn)[index::shares][len(finished) :]:
        start = time.monotonic()
        finished.append(judge(drawn, chosen.tree, chosen.files))
        write(chosen.out, finished)
        print(
            f"{time.monotonic() - start:5.0f} s  {drawn.outcome:11} {drawn.file}:{drawn.line}  "
            f"{drawn.before}  ->  {drawn.after}",
            flush=True,
        )
    print(Counter(x.outcome for x in finished))


def read(path: Path) -> list[Drawn]:
    """Read mutants from a file."""
    return [Drawn(**x) for x in json.loads(path.read_text("utf-8"))]


def write(path: Path, mutants: list[Drawn]) -> None:
    """Write mutants to a file."""
    path.write_text(json.dumps([asdict(x) for x in mutants], indent=1), "utf-8")


if __name__ == "__main__":
    main()
