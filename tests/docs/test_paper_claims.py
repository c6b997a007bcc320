"""Claims of papers: quick ones are tested again, and give the numbers that are kept."""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
import tomllib
from datetime import date
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from rounding import stays
from scipy import stats

from benchmarks import paper_findings
from benchmarks.paper_findings import (
    ENTRIES,
    ENTRY,
    MEASURED,
    results,
    with_verdict,
)
from interp.core.literature import papers

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# files of claims whose numbers are of memory or time, or whose models train without being timed
MEASURES = {"costs", "pictures_in_text"}
CHEAP = 20.0  # processor time of a claim that is tested here
DRAWN = 12
SEED = int(os.environ.get("INTERP_CLAIMS_SEED", date.today().toordinal()))
NUMBER = 6
UNTRAINED = ("training.forms", "training.graphs")  # weights at random, or written
# a machine whose written weights cancel exactly: with other last digits it is refused when loaded
EXACT = "one_instruction"


def test_every_result_is_of_the_present_test(claims: dict[str, Any]) -> None:
    """A changed sentence leaves the hash of a test as it is; a changed number does not."""
    assert sorted(results()) == sorted(claims)
    printed = {p.title: (p.tested, p.tested_on) for p in papers() if p.tested}
    withheld = {p.title for p in papers() if p.why_no_verdict}
    assert printed == {
        title: (x.verdict, x.models) for title, x in results().items() if title not in withheld
    }
    now = {title: (claim.models, claim.code) for title, claim in claims.items()}
    assert now == {title: (x.models, x.code) for title, x in results().items()}


def test_claims_about_trained_models_are_tested_on_every_host_of_their_kind(
    claims: dict[str, Any],
) -> None:
    from papers.hosts import HOSTS, SIX_LAYERS

    for title, claim in claims.items():
        found = {x.host for x in results()[title].findings} - {""}
        assert found == {host.name for host in claim.hosts}, title
        decoders = [host for host in claim.hosts if host.kind == "decoder of text"]
        assert not decoders or len(decoders) >= paper_findings.HOSTS, title
    for host in HOSTS[:3]:
        assert host is not SIX_LAYERS
        chosen, judged = (host.texts(32, judged=judged) for judged in (False, True))
        assert not set(map(tuple, chosen)) & set(map(tuple, judged))
        assert {len(row) for row in (*chosen, *judged)} == {host.length}


def test_a_verdict_is_written_into_its_entry() -> None:
    text = with_verdict("Loki: Low-Rank Keys for Efficient Sparse Attention", "undecided", 'a "m"')
    before = ENTRIES.read_text(encoding="utf-8")
    [entry] = set(text.split(ENTRY)) - set(before.split(ENTRY))
    assert tomllib.loads(entry)["tested"] == "undecided"
    assert tomllib.loads(entry)["tested_on"] == 'a "m"'
    assert text.count("\ntested = ") == before.count("\ntested = ")
    withheld = next(p.title for p in papers() if p.undecided)
    assert with_verdict(withheld, "did not hold", "a model") == before


def varies(module: str) -> bool:
    """Whether a file of claims, or one it imports, trains models or measures time or memory."""
    if module.rpartition(".")[2] in MEASURES:
        return True
    tree = ast.parse(Path(import_module(module).__file__ or "").read_text(encoding="utf-8"))
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    imported = {f"{n.module}.{name.name}" for n in nodes for name in n.names}
    imported -= {m for m in imported if m.startswith(UNTRAINED)}
    others = {".".join(m.split(".")[:2]) for m in imported if m.startswith("papers.")}
    others -= {"papers.finding", "papers.hosts"}
    return any(m.partition(".")[0] == "training" for m in imported) or any(map(varies, others))


def cost(claim: Any) -> float:
    """Processor time of testing a claim on models that come with the repository.

    Of models that a file trains for all of its claims at once, no claim has the time.
    """
    result = results()[claim.title]
    if claim.hosts:
        return result.seconds
    unknown = not result.training and varies(claim.test.__module__)
    return float("inf") if unknown else result.seconds + result.training


def again(claim: Any) -> list[tuple[Any, Any]]:
    """Test a claim on models that come with the repository: numbers beside those that are kept."""
    hosts = [host for host in claim.hosts if not host.trained_here]
    names = {host.name for host in hosts} or {""}
    kept = [x for x in results()[claim.title].findings if x.host in names]
    return list(zip(claim.measured(hosts), kept, strict=True))


@pytest.mark.slow
def test_twelve_drawn_claims_are_measured_as_before(claims: dict[str, Any]) -> None:
    """Numbers of models that are trained again, on another processor, need only be compatible."""
    print(f"drawn by INTERP_CLAIMS_SEED={SEED}")
    for title in np.random.default_rng(SEED).permutation(sorted(claims))[:DRAWN]:
        module = claims[title].test.__module__
        if cost(claims[title]) > CHEAP:
            print(f"not tested again, {cost(claims[title]):.0f} s: {title}")
            continue
        print(f"tested again: {title}")
        for finding, before in again(claims[title]):
            if claims[title].hosts or not varies(module):
                assert finding.what == before.what
                assert finding.verdict == before.verdict, (SEED, title)
                assert finding.value == pytest.approx(before.value, rel=0.02, abs=1e-4), title
            else:
                assert finding.low <= before.high + 1e-4, (SEED, title, finding, before)
                assert finding.high >= before.low - 1e-4, (SEED, title, finding, before)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_verdicts_do_not_turn_with_the_last_bit(claims: dict[str, Any], moved: Any) -> None:
    some = [
        claim
        for claim in sorted(claims.values(), key=cost)
        if cost(claim) > 0.1
        and (claim.hosts or not varies(claim.test.__module__))
        and EXACT not in claim.models
    ][:NUMBER]

    def answer() -> str:
        return "\n".join(f"{x.what}: {x.verdict}" for claim in some for x, _ in again(claim))

    stays(moved, answer, range(2))


ONE = """
SIZE = {size}

def helper(x):
    return x + {added}

def claimed():
    '''{words}'''
    return above("a {words} number", helper(SIZE), f"{{SIZE}} {words} rows")
"""


def test_a_hash_follows_numbers_and_helpers_and_no_words(
    claims: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    from papers.hashing import code_hash

    package = tmp_path / "training"
    package.mkdir()
    hashes = {}
    for name, changes in (
        ("plain", {}),
        ("moved", {}),
        ("worded", {"words": "quite other"}),
        ("sized", {"size": 4}),
        ("added", {"added": 2}),
    ):
        module_name = "training.other" if name == "moved" else "training.one"
        text = ONE.format(**({"size": 3, "added": 1, "words": "small"} | changes))
        file = package / f"one_{name}.py"
        file.write_text(text, encoding="utf-8")
        spec = spec_from_file_location(module_name, file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, module_name, module)
        spec.loader.exec_module(module)
        hashes[name] = code_hash(module.claimed)
    assert hashes["plain"] == hashes["worded"] == hashes["moved"]
    assert len(set(hashes.values())) == 3


def test_a_hash_follows_bounds_and_what_a_test_was_made_with(
    claims: dict[str, Any], monkeypatch: Any
) -> None:
    from papers.beside import beside
    from papers.finding import CLAIMS, words_of

    title = next(title for title in claims if title.startswith("Knocking-heads"))
    before = claims[title].code
    monkeypatch.delitem(CLAIMS, title)
    beside(title, ["knocking_heads"])
    assert CLAIMS[title].code == before
    monkeypatch.delitem(CLAIMS, title)
    beside(title, ["talking_heads"])
    assert CLAIMS[title].code != before
    kept = words_of(title)
    for change, same in ((("what", "other words"), True), (("bound", 1.0), False)):
        numbers = [x | dict([change]) for x in kept["numbers"]]
        monkeypatch.setitem(kept, "numbers", numbers)
        assert (claims[title].code == before) == same


def test_numbers_have_the_intervals_of_their_kind_and_the_words_that_are_kept(
    claims: dict[str, Any],
) -> None:
    from papers.finding import Interval, Ranks, Share, Worded, counted, finding, several

    words = {"what": "x", "unit": "nats", "side": "above", "bound": 0, "samples": "3 seeds, or so"}
    for number, ends in (
        (2, (2, 2, 2)),
        (np.array([1.0, 2.0, 3.0]), (2, 2 - 2.484138, 2 + 2.484138)),
        (Share(7, 200), (0.035, stats.beta.ppf(0.025, 7, 194), stats.beta.ppf(0.975, 8, 193))),
        (Interval(1, 0, 2), (1, 0, 2)),
        (Worded(3, {"unit": "bits"}), (3, 3, 3)),
    ):
        made = finding(words, number, "a host")
        assert (made.value, made.low, made.high) == pytest.approx(ends, abs=1e-6)
        assert (made.host, made.unit) == ("a host", "bits" if ends[0] == 3 else "nats")
    assert finding(words, Ranks([1, 2, 3, 4], [1, 3, 4, 9])).value == 1
    four = [1.0, 2.0, 3.0, 4.0]
    assert finding(words, counted(four, "texts")).samples == "4 texts"
    for values in (four, [1.0, 2.0], [1.0, 2.0, np.nan]):
        with pytest.raises(ValueError, match=r"^x: "):
            finding(words, values)
    assert several(iter([1, 2])) == several((1, 2)) == (1, 2)
    assert several([1, 2]) == ([1, 2],)  # one number, of two values


def test_a_broken_file_of_claims_stops_no_other(tmp_path: Path, monkeypatch: Any) -> None:
    package = tmp_path / "broken_papers"
    package.mkdir()
    shutil.copy(BENCHMARKS / "papers" / "__init__.py", package)
    (package / "a.py").write_text("raise ValueError('no data')", encoding="utf-8")
    (package / "b.py").write_text("DONE = True", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = import_module("broken_papers")
    assert list(made.BROKEN) == ["a"]
    assert "no data" in made.BROKEN["a"]
    assert import_module("broken_papers.b").DONE


def test_results_go_into_a_folder_of_the_users(
    claims: dict[str, Any], tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    command = import_module("benchmarks.paper_claims")
    assert not command.OUT.is_relative_to(BENCHMARKS.parent)
    before = MEASURED.read_bytes(), ENTRIES.read_bytes()
    title = next(p.title for p in papers() if "Looped Transformers" in p.title)
    monkeypatch.setattr(sys, "argv", ["paper_claims", "Looped Tr", "--out", str(tmp_path / "new")])
    assert command.main() == 0
    [file] = (tmp_path / "new").iterdir()
    result = paper_findings.tested_from(json.loads(file.read_text(encoding="utf-8"))[title])
    assert result.verdict == results()[title].verdict
    assert str(file) in capsys.readouterr().out
    assert before == (MEASURED.read_bytes(), ENTRIES.read_bytes())


def test_what_tests_of_claims_use_of_modules_exists(claims: dict[str, Any]) -> None:
    """Names in functions that train for minutes are looked up without running them."""
    missing = []
    for file in sorted((BENCHMARKS / "papers").glob("*.py")):
        known = vars(import_module(f"papers.{file.stem}"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = known.get(node.value.id)
                if isinstance(owner, ModuleType) and not hasattr(owner, node.attr):
                    missing.append(f"{file.name}:{node.lineno}: {ast.unparse(node)}")
    assert missing == []
