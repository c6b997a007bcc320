"""Every paper of the list has an entry, and whatever an entry names exists."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from fixtures.commands import called
from together import over

import interp
from interp.core.errors import InterpError
from interp.core.literature import (
    KINDS,
    STATUSES,
    VERDICTS,
    Paper,
    find_papers,
    papers,
)
from interp.core.registry import ATTRIBUTION_METHODS, CIRCUIT_METHODS, METRICS, Registry
from interp.planted import PLANTED
from training.forms import variant_names

ROOT = Path(__file__).parents[2]
TITLES = "e8425a5e3a85af16"  # of all titles, one a line: sha256, first 16 digits
GIVEN = {"model", "MODEL", "prompts"}  # what the reader has
NAMES: dict[str, tuple[Registry, str]] = {  # argument that holds names of a registry
    "interp.score": (METRICS, "metrics"),
    "interp.attribute": (ATTRIBUTION_METHODS, "method"),
    "interp.heads.emergence": (METRICS, "metrics"),
    "interp.faithfulness": (ATTRIBUTION_METHODS, "methods"),
    "interp.find_circuit": (CIRCUIT_METHODS, "method"),
}
HELD = [p for p in papers() if not p.pending]


def test_all_papers_of_the_list_are_there() -> None:
    titles = [p.title for p in papers()]
    assert len(titles) == len(set(titles)) == 175
    assert hashlib.sha256("\n".join(titles).encode()).hexdigest()[:16] == TITLES


def test_no_entry_waits_for_a_merge() -> None:
    """Remove `pending` from an entry once the branch is merged and its names are right."""
    assert [(p.pending, p.title) for p in papers() if p.pending] == []


@over("paper", HELD, ids=lambda p: p.title[:30])
def test_what_an_entry_names_exists(paper: Paper) -> None:
    assert problems(paper) == []


def problems(paper: Paper) -> list[str]:
    """What is wrong with an entry, one line each."""
    found = []
    for what, values, check in (
        ("call", paper.call, check_call),
        ("command", paper.command, check_command),
        ("file", paper.file, check_file),
        ("test", paper.test, check_test),
    ):
        for value in values:
            try:
                check(value)
            except (AssertionError, InterpError, SyntaxError, TypeError, click.ClickException) as e:
                found.append(f"{what} {value}: {e}")
    if paper.status not in STATUSES or not set(paper.kinds.split("+")) <= set(KINDS):
        found.append(f"status {paper.status!r} or kinds {paper.kinds!r} is unknown")
    if paper.status != "whole" and not paper.missing:
        found.append("an entry that is not whole says what is missing, and why")
    if not paper.question.endswith("?"):
        found.append("the question has no question mark")
    if paper.status != "out of scope" and not (paper.test and paper.file):
        found.append("an answer has a file and a test")
    if (
        {"A", "V"} & set(paper.kinds.split("+"))
        and paper.status != "out of scope"
        and not paper.call
    ):
        found.append("an answer has a call")
    return found + claim_problems(paper)


NOT_DONE = re.compile(
    r"not (offered|part|built|reproduced|measured|trained)|left out|no .* is offered"
)


def claim_problems(paper: Paper) -> list[str]:
    """What is wrong with the claim of an entry, one line each."""
    found = []
    if not paper.claim.endswith(".") or paper.claim.count(". "):
        found.append("the claim is one sentence")
    if sum(map(bool, (paper.tested, paper.not_testable, paper.undecided))) != 1:
        found.append("a claim is either tested or has one reason why it is not")
    if bool(paper.tested) != bool(paper.tested_on):
        found.append("a verdict names the models that it is about")
    if not PLACE.fullmatch(paper.place):
        found.append(f"the place {paper.place!r} is of no known form")
    if bool(READ.fullmatch(paper.read)) != (paper.place != "not traced"):
        found.append("a place says what was read, with its address, and nothing else does")
    if paper.tested == "did not hold" and paper.place == "not traced":
        found.append("a claim that cannot be traced is withdrawn")
    if paper.as_published and not paper.tested:
        found.append("only a claim that was tested has the paper's conditions")
    if paper.status == "whole" and not paper.tested:
        found.append("an entry without a tested claim is not whole")
    named = stems(paper.title)
    for sentence in re.split(r"[;.:] ", paper.missing if paper.status == "whole" else ""):
        if NOT_DONE.search(sentence) and len(named & stems(sentence)) > 1:
            found.append(f"the title names what is not done: {sentence}")
    return found


PLACE = re.compile(
    r"(?!$)(?:abstract|section [A-Z]?[\d.]*\d(?:, (?:table|figure) \d+)?)?"
    r"(?:(?:^|(?<!^); )ours: [^;]+)?|not traced"
)
READ = re.compile(
    r"in (?:the abstract|the text|an account that quotes the abstract)(?: of [^;]+?)?"
    r"(?:, arXiv:\d{4}\.\d{5}| \([A-Z][a-z]+ et al\., \d{4}\))(?:; .+)?"
)

COMMON = {
    "attent",
    "transf",
    "model",
    "langua",
    "head",
    "heads",
    "large",
    "paper",
    "traini",
    "token",
}


def stems(text: str) -> set[str]:
    """The first letters of the words that say what a title is about."""
    return {w[:6] for w in re.findall(r"[a-z]{4,}", text.lower())} - COMMON


def check_call(text: str) -> None:
    """The function exists and takes these arguments; names of metrics and models are known."""
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.Call), "is not a call"
    name = ast.unparse(tree.func)
    if name.startswith("model."):
        assert hasattr(interp.Model, name.removeprefix("model.")), "no such member of a model"
        return
    function = attribute_of(name)
    keywords = {k.arg: k.value for k in tree.keywords if k.arg}
    given = inspect.signature(function).bind(*tree.args, **keywords).arguments
    if name in NAMES:
        registry, argument = NAMES[name]
        value = given.get(argument)
        if value is not None and not isinstance(value, ast.Name):  # the caller's own list
            named = ast.literal_eval(value)
            for one in [named] if isinstance(named, str) else named:
                registry.check(one)
    if name == "interp.load" and not isinstance(tree.args[0], ast.Name):
        kind, _, rest = ast.literal_eval(tree.args[0]).partition(":")
        assert kind == "planted", "names no model that comes with the package"
        assert rest in PLANTED, f"no planted model is called {rest}"
    if name == "training.forms.load":
        assert ast.literal_eval(tree.args[0]) in variant_names(), "no such form of attention"


def attribute_of(name: str) -> Any:
    """The object behind a dotted name."""
    parts = name.split(".")
    assert parts[0] in ("interp", "training"), "is neither of the package nor of the repository"
    value: Any = import_module(parts[0])
    for i, part in enumerate(parts[1:], start=2):
        if not hasattr(value, part):
            try:
                import_module(".".join(parts[:i]))
            except ModuleNotFoundError as error:
                raise AssertionError(f"{'.'.join(parts[:i])} does not exist") from error
        value = getattr(value, part)
    return value


def check_command(text: str) -> None:
    """The command has these options, their values are possible, and the rest are its arguments."""
    program, *words = shlex.split(text)
    assert program == "interp"
    command, rest = called(words)
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    most = sum(1 if p.nargs > 0 else len(rest) for p in arguments)
    options = {o: p for p in command.params for o in p.opts if isinstance(p, click.Option)}
    context, waiting, plain = click.Context(command), list(rest), 0
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("-"):
            assert word in ("MODEL", "MODELS") or not word.isupper(), f"{word} is not a model"
            plain += 1
            continue
        assert word in options, f"no option {word}"
        option = options[word]
        if not option.is_flag:
            assert waiting, f"{word} needs a value"
            value = waiting.pop(0)
            if not value.isupper():  # a name that stands for a value
                option.type.convert(value, option, context)
    assert plain <= most, "too many arguments"


def check_file(text: str) -> None:
    """The file exists."""
    assert (ROOT / text).is_file(), "no such file"


@cache
def declared_tests(path: Path) -> set[str]:
    """Names of the tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}


def check_test(text: str) -> None:
    """The test exists; a benchmark has a page and a script."""
    path, _, name = text.partition("::")
    check_file(path)
    if name:
        assert re.match(r"tests/.*/test_\w+\.py$", path), "is not a file of tests"
        assert name.startswith("test_"), "is not the name of a test"
        assert name in declared_tests(ROOT / path), "no such test"
    else:
        assert re.match(r"benchmarks/\w+\.md$", path), "is neither a test nor a benchmark"
        check_file(path.removesuffix(".md") + ".py")


def test_the_checks_see_what_does_not_exist() -> None:
    good: dict[str, Any] = {
        "title": "T",
        "kinds": "A",
        "question": "Why?",
        "status": "whole",
        "call": ('interp.score(model, "echo")',),
        "command": ("interp score MODEL -m echo",),
        "file": ("interp/__init__.py",),
        "test": ("tests/docs/test_literature.py::test_all_papers_of_the_list_are_there",),
        "claim": "It does.",
        "tested": "held",
        "tested_on": "a model",
        "place": "abstract; ours: the bound",
        "read": "in the abstract, arXiv:1234.56789",
    }
    assert problems(Paper(**good)) == []
    wrong: list[dict[str, Any]] = [
        {"call": ('interp.score(model, "ecko")',)},
        {"call": ("interp.scores(model)",)},
        {"call": ('interp.score(model, "echo", promts=1)',)},
        {"call": ('interp.load("variant:entmax")',)},
        {"call": ('training.forms.load("none")',)},
        {"call": ()},
        {"command": ("interp score MODEL -m ecko",)},
        {"command": ("interp score MODEL --metrik echo",)},
        {"command": ("interp skore MODEL",)},
        {"file": ("interp/nowhere.py",)},
        {"test": ("tests/docs/test_literature.py::test_nothing",)},
        {"test": ("benchmarks/nowhere.md",)},
        {"test": ()},
        {"status": "in part"},
        {"kinds": "B"},
        {"question": "Why"},
        {"claim": ""},
        {"claim": "It does. It also does more."},
        {"not_testable": "Too large."},
        {"undecided": "It compares with something else."},
        {"status": "in part", "missing": "Much.", "tested": "", "tested_on": ""},
        {"tested_on": ""},
        {"place": "in the paper"},
        {"place": "section"},
        {"place": "; ours: the bound"},
        {"place": "not traced"},
        {"place": "not traced", "read": "", "tested": "did not hold"},
        {"place": ""},
        {"status": "in part", "missing": "Much.", "not_testable": "Too large.", "tested": ""}
        | {"tested_on": "", "as_published": True},
        {"read": ""},
        {"read": "from memory"},
        {"title": "Pruning sparse caches", "missing": "Pruning of sparse caches is not offered."},
    ]
    for change in wrong:
        assert len(problems(Paper(**good | change))) == 1, change
    for place in ("abstract", "section 4.2, table 3", "section B.1; ours: a bound", "ours: of it"):
        named: dict[str, Any] = good | {"place": place}
        assert problems(Paper(**named)) == [], place


def test_no_verdict_against_a_paper_stands_without_its_subject(docs, run) -> None:
    text = "\n".join(lines())
    for paper in papers():
        if paper.tested:
            words = {"depends on the model": "among", "not testable here": "with no more than"}
            among = words.get(paper.tested, "for")
            assert paper.stated == f"{paper.tested} {among} {paper.tested_on}"
            cell = paper.stated.replace(paper.tested, f"**{paper.tested}**", 1)
            assert f"| {cell} |" in text, paper.title
        else:
            assert paper.verdict == ("undecided" if paper.undecided else "not testable here")
            assert f"**{paper.verdict}**: {paper.why_no_verdict} |" in text, paper.title
    shown = run("list", "metrics", "--paper", "RADLADS").stdout
    assert "Tested: did not hold for softmax models trained alike" in shown
    assert "Place: abstract; ours: " in shown
    assert "(read in the abstract, arXiv:2505.03005)" in shown
    shown = run("list", "metrics", "--paper", "Are Sixteen").stdout
    assert "Tested: did not hold for bundled:stories, bundled:stories-seed2, six layers" in shown
    shown = run("list", "metrics", "--paper", "Fibottention").stdout
    assert "Tested: not testable here\nWhy no verdict: The results are on images" in shown


def lines() -> Iterator[str]:
    """Lines of the page."""
    yield from import_module("literature_page").page().splitlines()


def test_every_paper_is_a_row_of_the_page_and_counted(docs) -> None:
    rows = [line for line in lines() if line.startswith("| ")]
    for paper in papers():
        title = paper.title.replace("|", "\\|")
        assert sum(row.startswith(f"| {title} | {paper.question}") for row in rows) == 1, title
        claims = [row for row in rows if f") | {paper.claim} |" in row]
        assert [row.startswith(f"| [{title}](https://") for row in claims] == [True], title
    for status in STATUSES:
        assert sum(p.status == status for p in papers()) == counted(rows, status)
    for verdict in VERDICTS:
        assert sum(p.verdict == verdict for p in papers()) == counted(rows, verdict)
    placed = rows[: next(i for i, row in enumerate(rows) if row.startswith("| verdict | claims"))]
    second = next(i for i, row in enumerate(placed) if row.startswith("| claims by where"))
    for some in (placed[1:second], placed[second + 1 :]):
        for at, verdict in enumerate(("", *VERDICTS), start=2):
            told = sum(int(row.split("|")[at]) for row in some)
            assert told == sum(verdict in ("", p.verdict) for p in papers())
    same = sum(p.as_published for p in papers())
    assert placed[1].startswith(f"| something like the paper's own conditions | {same} |")


def counted(rows: list[str], name: str) -> int:
    """The number of papers of one status or verdict that the page states."""
    [[head, told]] = [
        [row, rows[at + 1]]
        for at, row in enumerate(rows)
        if row.startswith("| papers by") and f"| {name} |" in row
    ]
    return int(told.split("|")[head.split("|").index(f" {name} ")])


def test_papers_are_found_by_a_part_of_their_title(run, errors) -> None:
    assert [p.title[:4] for p in find_papers("LOKI")] == ["Loki"]
    assert [p.title[:4] for p in find_papers("nystrom")] == ["Nyst"]
    shown = run("list", "metrics", "--paper", "loki").stdout
    assert "Command: interp score MODEL -m key_rank" in shown
    assert run("list", "methods", "--paper", "loki").stdout == shown
    for given, told in (
        (("--paper", "lookbak lens"), "did you mean 'Lookback Lens"),
        (("--paper", "xyzzy"), "the list has 175 papers"),
        (("echo", "--paper", "loki"), "not both"),
    ):
        code, [line] = errors("list", "metrics", *given)
        assert code == 2
        assert told in line
