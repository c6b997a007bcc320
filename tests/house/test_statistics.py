"""Modules of statistics: no other file draws bootstraps, ranks, tests or errors by itself.

Looked for in every other file of the package: functions and classes named after a bootstrap, a rank
correlation, an AUROC, a permutation test or a correction; imports of such functions from scipy and
scikit-learn; calls that draw with replacement as many as there are (`multinomial`, `integers(n,
n)`, `integers(n, size=(draws, n))`, `choice(x, len(x))`); quantiles of draws. Of the two modules,
one defines and imports only statistics of ranks and draws nothing, the other only the rest.

A standard error (a spread over the root of a number), the factor of a jackknife, and the tail or a
quantile of a distribution are computed in `interp/core/`, where the formulas of
`tests/core/test_error_formulas.py` and its neighbours hold them; elsewhere each would need a test
of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "interp"
DRAWS, RANKS = "core/statistics.py", "core/rank_statistics.py"
NAMES = {
    DRAWS: re.compile(
        "bootstrap|holm|bonferroni|benjamini|false_discovery|permutation_test|sign_flip"
    ),
    RANKS: re.compile("spearman|kendall|auroc|roc_auc|rankdata"),
}
LIBRARY = {
    DRAWS: {
        "scipy.stats": {
            "bootstrap",
            "false_discovery_control",
            "permutation_test",
            "ttest_1samp",
            "ttest_rel",
            "wilcoxon",
        },
        "sklearn.utils": {"resample"},
    },
    RANKS: {
        "scipy.stats": {"hypergeom", "kendalltau", "mannwhitneyu", "rankdata", "spearmanr"},
        "sklearn.metrics": {"auc", "roc_auc_score", "roc_curve"},
    },
}


MAY = re.compile(
    "|".join(p.pattern for p in NAMES.values())
    + r"|scipy\.stats|sklearn\.|\.(integers|choice|multinomial|(nan)?(quantile|percentile))\(",
    re.IGNORECASE,
)
"""What stands in the text of every file in which something is found."""


def found(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line and reason of everything in a file that belongs in a module of statistics, and which."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for module, names in NAMES.items():
                if names.search(node.name.lower()):
                    yield node.lineno, f"defines {node.name}", module
        elif isinstance(node, ast.ImportFrom):
            for module, library in LIBRARY.items():
                wrong = library.get(node.module or "", set()) & {a.name for a in node.names}
                if wrong:
                    reason = f"imports {', '.join(sorted(wrong))} of {node.module}"
                    yield node.lineno, reason, module
        elif isinstance(node, ast.Call) and _draws(node):
            yield node.lineno, f"calls {ast.unparse(node)}", DRAWS


def _draws(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    given = {k.arg: k.value for k in call.keywords}
    if name in ("multinomial", "quantile", "nanquantile", "percentile", "nanpercentile"):
        return True
    if name == "integers":
        above = call.args[-1] if len(call.args) < 3 else call.args[1]
        size = given.get("size", call.args[2] if len(call.args) > 2 else None)
        last = size.elts[-1] if isinstance(size, ast.Tuple) else size
        return last is not None and ast.dump(last) == ast.dump(above)
    if name == "choice" and len(call.args) > 1 and "replace" not in given:
        return ast.unparse(call.args[1]) == f"len({ast.unparse(call.args[0])})"
    return False


TAILS_OF_THEIR_OWN = {
    "profiles/dimensions.py": "tests/profiles/test_dimensions.py",
    "causal/shapley_values/surrogate.py": "tests/causal/test_intervals.py",
}
"""Other files that ask a distribution for quantiles, and the tests that hold them."""
TAILS = re.compile("(stdtr|ndtr|betainc|gammainc|chdtr|fdtr|bdtr)\\w*")  # of scipy.special
SPREAD = re.compile("(nan)?(std|var)")
JACKKNIFE = re.compile(r"\((\S+|len\(\w+\)) - 1\) / \1 \*")


def formulas(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and reason of every standard error, jackknife and tail of a distribution in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            calls = (x.func for x in ast.walk(node.left) if isinstance(x, ast.Call))
            spread = any(isinstance(x, ast.Attribute) and SPREAD.fullmatch(x.attr) for x in calls)
            if spread and not isinstance(node.right, ast.Constant):
                yield node.lineno, f"divides a spread: {ast.unparse(node)}"
        if isinstance(node, ast.BinOp) and JACKKNIFE.match(ast.unparse(node)):
            yield node.lineno, f"computes a jackknife: {ast.unparse(node)}"
        called = node.func if isinstance(node, ast.Call) else None
        if (isinstance(called, ast.Attribute) and called.attr in ("ppf", "isf", "sf", "cdf")) or (
            isinstance(called, ast.Name) and TAILS.fullmatch(called.id)
        ):
            yield called.lineno, f"asks for a tail: {ast.unparse(node)}"


def test_errors_and_tails_are_computed_in_the_core() -> None:
    wrong, with_tails = [], set()
    for path in sorted(ROOT.rglob("*.py")):
        file = path.relative_to(ROOT).as_posix()
        if file.startswith("core/"):
            continue
        for line, reason in formulas(ast.parse(path.read_text(encoding="utf-8"))):
            if "a tail" in reason and file in TAILS_OF_THEIR_OWN:
                with_tails.add(file)
            else:
                wrong.append(f"interp/{file}:{line} {reason}")
    assert not wrong, "; ".join(wrong) + ": use interp/core/standard_errors.py or intervals.py"
    assert with_tails == set(TAILS_OF_THEIR_OWN)


@pytest.mark.parametrize(
    "line",
    [
        "x.std(0, ddof=1) / n**0.5",
        "float(np.std(x, ddof=1)) / math.sqrt(len(x))",
        "np.var(x, ddof=1) / len(x)",
        "np.sqrt((n - 1) / n * np.square(each - each.mean(0)).sum(0))",
        "2 * student.sf(abs(score) / sem, df)",
        "2 * stdtr(df, -abs(score) / sem)",
    ],
)
def test_an_error_elsewhere_is_found(line: str) -> None:
    assert list(formulas(ast.parse(line)))


def test_statistics_are_computed_in_their_modules() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {reason}: move to interp/{module}"
        for path in sorted(ROOT.rglob("*.py"))
        if MAY.search(text := path.read_text(encoding="utf-8"))
        for line, reason, module in found(ast.parse(text))
        if path != ROOT / module
    ]
    assert not wrong, "; ".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "def _spearman(a, b): ...",
        "class PromptBootstrap: ...",
        "from scipy.stats import rankdata",
        "rng.integers(n, size=(draws, n))",
        "rng.integers(0, len(x), size=(2000, len(x)))",
        "rng.integers(0, n, n)",
        "rng.choice(x, len(x))",
        "rng.multinomial(n, even, size=draws)",
        "np.quantile(drawn, [0.025, 0.975])",
    ],
)
def test_a_second_one_is_found(line: str) -> None:
    assert list(found(ast.parse(line)))
    assert MAY.search(line)


@pytest.mark.parametrize(
    "line",
    ["rng.integers(len(words))", "rng.integers(0, 5, 16)", "rng.choice(x, k, replace=False)"],
)
def test_other_draws_are_left_alone(line: str) -> None:
    assert not list(found(ast.parse(line)))
