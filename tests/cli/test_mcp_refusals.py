"""What `interp mcp` does not answer: other models, files and tools, wrong and huge arguments."""

from __future__ import annotations

import os
import re

import pytest
from cli.agents import MODEL, agent_server, call, repeated_texts, session_in, talk
from mcp.shared.exceptions import MCPError
from together import over

from interp.circuits.tasks.named import TASKS
from interp.cli.mcp.declared import require_names
from interp.cli.mcp.resources import LARGEST_FILE, ResultFiles
from interp.core.errors import OptionError
from interp.core.registry import CIRCUIT_METHODS, METRICS
from interp.profiles.entries import PLACES
from interp.profiles.rules import declared_rules

ONE = {"heads": ["L1H0"]}
LISTED = {"head": "L1H0", "entries": [{"keys": "induction"}]}
BAD = [
    ("list_heads", {"model": "gpt2"}, "'gpt2' is not one of"),
    ("list_heads", {"metrics": "induction"}, "is not of type 'array'"),
    ("list_heads", {"metrics": ["inducton"]}, "unknown metric 'inducton'"),
    ("list_heads", {"metrics": ["evil.py"]}, "names a file"),
    ("list_heads", {"metrics": ["evil.py:x=1"]}, "names a file"),
    ("list_heads", {"metrics": ["induction", "../evil"]}, "names a file"),
    ("list_heads", {"corpus": "texts.jsonl"}, "list_heads takes model, metrics"),
    ("head", {}, "'heads' is a required property"),
    ("head", {"heads": []}, "heads: [] should be non-empty"),
    ("head", {"heads": ["L1H0"] * 65}, "is too long"),
    ("head", {"heads": ["L9H9"]}, "L9H9"),
    ("head", {"heads": ["<script>"]}, "<script>"),
    ("head", {"heads": ["L1H0\x1b[2J"]}, r"'L1H0\x1b[2J'"),
    ("head", {"heads": ["L" + "1" * 100_000]}, "is too long"),
    ("head", ONE | {"n_documents": 10**400}, "n_documents"),
    ("head", ONE | {"n_documents": -1}, "less than the minimum"),
    ("head", ONE | {"n_documents": True}, "is not of type 'integer'"),
    ("head", ONE | {"n_documents": 2.5}, "is not of type 'integer'"),
    ("head", ONE | {"n_documents": "64"}, "is not of type 'integer'"),
    ("head", ONE | {"resume": "/tmp"}, "Additional properties"),
    ("pattern", ONE | {"text": "a" * 20_001}, "is too long"),
    ("pattern", ONE | {"text": "a"}, "no tokenizer"),
    ("pattern", ONE | {"text": ["a"]}, "is not of type 'string'"),
    ("ablate", {"task": "evil.py"}, "names a file"),
    ("ablate", {"task": "nosuch"}, "unknown task 'nosuch'"),
    ("ablate", {"kind": "mean-dataset"}, "reference"),
    ("ablate", {"heads": ["L0H0", "L0H0.py"]}, "names a file"),
    ("circuit", {"task": "/etc/pairs.jsonl"}, "names a file"),
    ("circuit", {"task": "nosuch"}, "unknown contrast task 'nosuch'"),
    ("circuit", {"method": "evil.py"}, "is not one of"),
    ("judge", {"hypothesis": "L1H0=evil.py:run"}, "names a file"),
    ("judge", {"hypothesis": "L1H0=a=evil.py:run"}, "names a file"),
    ("judge", {"hypothesis": "evil.py:run"}, "names a file"),
    ("judge", {"hypothesis": "L1H0=/etc/names.toml"}, "names a file"),
    ("judge", {"hypothesis": "L1H0=names.json "}, "names a file"),
    ("judge", {"hypothesis": "L1H0=~/names"}, "names a file"),
    ("judge", {"hypothesis": "L1H0=induction from evil.py:run"}, "names a file"),
    ("judge", {"hypothesis": LISTED | {"queries": "evil.py:run"}}, "names a file"),
    ("judge", {"hypothesis": LISTED | {"queries": "nmaes"}}, "unknown kind of queries 'nmaes'"),
    ("judge", {"hypothesis": "L1H0=nosuch"}, "unknown rule 'nosuch'"),
    ("judge", {"hypothesis": "induction"}, "names no head"),
    ("judge", {"hypothesis": "L1H0=" + "a" * 5_000}, "not valid under any"),
    ("judge", {"hypothesis": 3}, "not valid under any"),
    ("judge", {"hypothesis": LISTED | {"head": "L7H7"}}, "L7H7"),
    ("judge", {"hypothesis": LISTED | {"entries": [{"keys": "evil.py:run"}]}}, "names a file"),
    ("judge", {"hypothesis": LISTED | {"entries": [{"keys": {"a": 1}}]}}, "not valid under any"),
    ("judge", {"hypothesis": LISTED | {"entries": []}}, "1 to 5 entries"),
    ("judge", {"hypothesis": '{"head": "L1H0"'}, "is not valid JSON"),
    ("judge", {"hypothesis": '{"a":' * 400}, "is not valid JSON"),
    (
        "judge",
        {"hypothesis": '{"head": "L1H0", "entries": [{"keys": "evil.py"}]}'},
        "names a file",
    ),
    ("judge", {"hypothesis": LISTED | {"entries": [{"tokens": ["a"]}]}}, "no tokenizer"),
    ("judge", {"hypothesis": LISTED, "n_documents": 2}, "too small"),
    ("judge", {"hypothesis": LISTED, "questions": "/tmp"}, "Additional properties"),
    ("ledger", {"<b>": 1}, "'<b>' was unexpected"),
]


@pytest.fixture(scope="module")
def refusing_session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    (folder / "evil.py").write_text("raise SystemExit('it was run')")
    here = os.getcwd()
    os.chdir(folder)
    yield session_in(folder / "out", corpus=[repeated_texts(folder, 60)])
    os.chdir(here)


@over(("tool", "given", "says"), BAD, ids=[f"{x[0]} {str(x[1])[:60]}" for x in BAD])
def test_a_wrong_argument_is_an_error_that_says_why(refusing_session, tool, given, says):
    failed, text = call(refusing_session, tool, **given)
    assert failed, text
    assert says in text
    assert len(text) < 2_000
    assert "Traceback" not in text
    assert "unexpectedly" not in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\ud800-\udfff]", text)


def test_refused_questions_are_not_in_the_ledger(refusing_session):
    failed, text = call(refusing_session, "ledger")
    assert not failed
    assert text.startswith("0 questions so far")
    assert not (refusing_session.results.out / "ledgers").exists()


def test_an_unknown_tool_is_named_with_the_known_ones(refusing_session):
    async def conversation(client):
        with pytest.raises(MCPError) as caught:
            await client.call_tool("rm\x1b -rf " * 1_000, {})
        return str(caught.value)

    text = talk(refusing_session, conversation)
    assert "unknown tool 'rm[U+001B] -rf" in text
    assert "list_heads" in text
    assert len(text) < 300


def test_a_half_character_is_refused(refusing_session):
    for given in ({"hypothesis": "L1H0=\ud800"}, {"hypothesis": "a", "\udfff": 1}):
        with pytest.raises(OptionError, match=r"lone surrogate|Additional"):
            refusing_session.answer(_tool("judge"), given, lambda *_: None)


def _tool(name):
    from interp.cli.mcp.tools import TOOLS

    return TOOLS[name]


def test_no_known_name_is_taken_for_a_file():
    rules = [*(x.name for x in declared_rules()), *(x.rule.name for x in PLACES)]
    names = [*METRICS, *CIRCUIT_METHODS, *TASKS, *rules, "local_window:width=8", "a:threshold=.2"]
    for name in [*names, *(f"encoder.L0H1={rule}" for rule in rules)]:
        require_names([name], ())
    require_names({"heads": ["L0H1", "encoder.L0H1"], "text": "/a.py", "tokens": [".py"]}, ())


def test_a_file_that_the_user_named_may_be_given():
    for asked in ("L1H0=rules.py:mine", "encoder.L1H0 = my/rules.py:mine", "rules.py"):
        require_names(asked, {"rules.py", "my/rules.py"}, "hypothesis")
    for asked in ("L1H0=rules.py:a.py", "x/L1H0=rules.py:mine", "L1H0=./rules.py:mine"):
        with pytest.raises(OptionError, match=r"names a file.*one of my/rules\.py, rules\.py"):
            require_names(asked, {"rules.py", "my/rules.py"}, "hypothesis")


@pytest.fixture
def result_files(tmp_path):
    out = tmp_path / "out"
    for folder in ("model", "kept", "ledgers", ".hidden"):
        (out / folder / "deep").mkdir(parents=True)
        (out / folder / "page.html").write_text("<p>")
        (out / folder / "deep" / "page.html").write_text("<p>")
    (out / "top.json").write_text("{}")
    (out / "<b>\x1b[2J.csv").write_text("a,b")
    (out / ".secret.json").write_text("{}")
    (out / "weights.safetensors").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text("{}")
    (out / "link.json").symlink_to(outside / "secret.json")
    (out / "linked").symlink_to(outside)
    if hasattr(os, "mkfifo"):
        os.mkfifo(out / "pipe.json")
    return ResultFiles(out)


def test_only_results_in_the_folder_are_listed(result_files):
    assert sorted(result_files.listed()) == [
        "interp://results/%3Cb%3E%1B%5B2J.csv",
        "interp://results/model/page.html",
        "interp://results/top.json",
    ]
    assert result_files.read("interp://results/model/page.html") == ("<p>", "text/html")


@over(
    "address",
    [
        "interp://results/../outside/secret.json",
        "interp://results/%2e%2e/outside/secret.json",
        "interp://results/model/../top.json",
        "interp://results//top.json",
        "interp://results/link.json",
        "interp://results/linked/secret.json",
        "interp://results/.secret.json",
        "interp://results/kept/page.html",
        "interp://results/model/deep/page.html",
        "interp://results/weights.safetensors",
        "interp://results/top.json\x00",
        "interp://results/",
        "file:///etc/passwd",
        "/etc/passwd",
        "",
        "x" * 100_000,
    ],
    ids=lambda address: str(address)[:60],
)
def test_nothing_else_can_be_read(result_files, address):
    with pytest.raises(OptionError, match="there is no result") as caught:
        result_files.read(address)
    assert len(str(caught.value)) < 1_000


def test_a_file_that_is_no_text_or_too_large_is_refused(result_files):
    (result_files.out / "bytes.json").write_bytes(b"\xff")
    with (result_files.out / "large.json").open("wb") as large:
        large.truncate(LARGEST_FILE + 1)
    with pytest.raises(Exception, match="not text in UTF-8"):
        result_files.read("interp://results/bytes.json")
    with pytest.raises(OptionError, match="open it on the machine"):
        result_files.read("interp://results/large.json")


def test_a_client_lists_and_reads_them(result_files, tmp_path):
    async def conversation(client):
        listed = (await client.list_resources()).resources
        read = await client.read_resource("interp://results/top.json")
        with pytest.raises(MCPError, match="there is no result"):
            await client.read_resource("interp://results/../outside/secret.json")
        return [x.name for x in listed], read.contents[0].text

    server = agent_server(session_in(result_files.out, MODEL))
    names, text = talk(server, conversation)
    assert "<b>[U+001B][2J.csv" in names
    assert text == "{}"
