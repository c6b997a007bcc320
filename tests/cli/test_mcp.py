"""`interp mcp` as a process: conversations over both transports, progress, cancelling, its end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from cli.agents import MODEL, call, command_of, repeated_texts, session_in, talk

from interp.cli.mcp import server
from interp.cli.mcp.session import LONGEST_ANSWER
from interp.cli.mcp.tools import TOOLS
from interp.core.errors import OptionError

ROOT = Path(__file__).parents[2]
NAMES = ["list_heads", "head", "examples", "pattern", "ablate", "circuit", "judge", "ledger"]
INITIAL = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.fixture
def agent_texts(tmp_path):
    return repeated_texts(tmp_path)


@pytest.mark.slow
def test_an_agent_finds_a_planted_head_and_has_it_judged(agent_texts, tmp_path):
    async def conversation(client):
        said = {}
        names = [tool.name for tool in (await client.list_tools()).tools]
        for tool, given in (
            ("list_heads", {}),
            ("head", {"heads": ["L1H0"], "n_documents": 24}),
            ("examples", {"heads": ["L1H0"], "n_documents": 24}),
            ("ablate", {"heads": ["L1H0"]}),
            ("circuit", {"method": "attribution_patching"}),
            ("judge", {"hypothesis": "L1H0=induction", "n_documents": 24}),
            ("ledger", {}),
        ):
            result = await client.call_tool(tool, given)
            said[tool] = result.content[0].text
            assert not result.is_error, said[tool]
            assert len(said[tool]) <= LONGEST_ANSWER
            assert "\nNext: " in said[tool]
        files = [str(x.uri) for x in (await client.list_resources()).resources]
        pages = [await client.read_resource(uri) for uri in files]
        return names, said, files, [page.contents[0] for page in pages]

    out = tmp_path / "out"
    command = command_of(MODEL, "--corpus", agent_texts, "-o", out, cwd=tmp_path)
    names, said, files, pages = talk(command, conversation)
    assert names == NAMES
    assert "1 induction head: L1H0" in said["list_heads"]
    assert "100 % goes to the token after an earlier copy" in said["head"]
    assert "L1H0: the queries with the largest attention" in said["examples"]
    assert "nats/token, lost without it" in said["ablate"]
    assert "L1H0" in said["circuit"]
    assert said["judge"].startswith("L1H0=induction: holds; explained 1.00")
    assert "1 question so far" in said["ledger"]
    assert "1. L1H0=induction: holds (" in said["ledger"]
    stems = ["circuit-induction-attribution_patching", "profile-L1H0", "verdict-1"]
    folder = "interp://results/planted-induction"
    assert sorted(files) == [f"{folder}/{x}.{end}" for x in stems for end in ("html", "json")]
    assert {page.mime_type for page in pages} == {"text/html", "application/json"}
    assert all(page.text for page in pages)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"out", agent_texts.name}  # nothing beside the folder of -o


@pytest.mark.slow
def test_standard_output_carries_nothing_but_the_protocol(agent_texts, tmp_path):
    rules = tmp_path / "loud.py"
    rules.write_text(
        "import os\nos.system('echo from a child')\nprint('noise')\n"
        "def before(query, key):\n    print('more')\n    return key == query - 1\n"
    )
    args = [MODEL, "--corpus", agent_texts, "-o", tmp_path / "out", "--set", f"rules={rules}"]
    command = command_of(*args)
    asked = {"hypothesis": f"L0H3={rules}:before", "n_documents": 16}
    sent = [
        {"id": 1, "method": "initialize", "params": INITIAL},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "judge", "arguments": asked}},
    ]
    process = subprocess.Popen(
        [command.command, *command.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for message in sent:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.write("{]\n" + "[" * 100_000 + "\n\ud7ff\n")  # nonsense ends nothing
    process.stdin.flush()
    answers = []
    while not any(x.get("id") == 2 for x in answers):
        answers.append(json.loads(process.stdout.readline()))  # raises for any other line
    begun = time.monotonic()
    rest, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert time.monotonic() - begun < 5
    assert rest == ""
    text = next(x for x in answers if x.get("id") == 2)["result"]["content"][0]["text"]
    assert text.startswith(f"L0H3={rules}:before")
    assert "noise" in errors
    assert "from a child" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_long_work_reports_progress_and_can_be_cancelled(mode, tmp_path):
    async def conversation(client):
        seen = []
        begun = anyio.Event()

        async def report(value, total, message):
            seen.append((value, message))
            begun.set()

        async def long():
            given = {"heads": ["L1H0"], "n_documents": 5_000}
            await client.call_tool("head", given, progress_callback=report)

        async with anyio.create_task_group() as group:
            group.start_soon(long)
            await begun.wait()
            await anyio.sleep(0.5)
            group.cancel_scope.cancel()
        started = time.monotonic()
        result = await client.call_tool("ledger", {})
        return seen, result, time.monotonic() - started

    texts = repeated_texts(tmp_path, 5_000)
    command = command_of(MODEL, "--corpus", texts, "-o", tmp_path / "out")
    seen, result, seconds = talk(command, conversation, mode=mode)
    values = [value for value, _ in seen]
    assert values == sorted(set(values))  # only growing, as the protocol asks
    assert any(" of " in message for _, message in seen)
    assert not result.is_error
    assert seconds < 10
    assert not list((tmp_path / "out").glob("*/profile*"))


@pytest.fixture
def http_server(tmp_path):
    command = command_of(MODEL, "-o", tmp_path / "out", "--set", "port=0")
    process = subprocess.Popen(
        [command.command, *command.args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process, process.stdout.readline().strip()
    if process.poll() is None:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_http_answers_this_machine_with_the_token_alone(http_server):
    import httpx2

    process, address = http_server
    plain, _, token = address.partition("?token=")
    assert plain.startswith("http://127.0.0.1:")
    failed, text = call(address, "ablate", heads=["L1H0"])
    assert not failed
    assert "L1H0" in text
    bearer = {"Authorization": f"Bearer {token}"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIAL}
    accepted = {"Accept": "application/json, text/event-stream"}
    for headers, status in (
        (bearer, 200),
        ({}, 403),
        ({"Authorization": f"Bearer {token[:-1]}"}, 403),
        ({"Authorization": token.swapcase()}, 403),
        (bearer | {"Host": "evil.example"}, 403),
        (bearer | {"Host": "127.0.0.1"}, 403),
        (bearer | {"Origin": "http://evil.example"}, 403),
        (bearer | {"Origin": "null"}, 403),
    ):
        answer = httpx2.post(plain, json=body, headers=accepted | headers)
        assert answer.status_code == status, (headers, answer.text)
        assert status == 200 or token not in answer.text
    assert httpx2.get(plain.removesuffix("/mcp"), headers=bearer).status_code == 404
    large = httpx2.post(plain, content=b"x" * 5_000_000, headers=accepted | bearer)
    assert large.status_code == 413
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_without_a_traceback(number, tmp_path):
    command = command_of(MODEL, "-o", tmp_path / "out")
    process = subprocess.Popen(
        [command.command, *command.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIAL}
    process.stdin.write(json.dumps(first) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "interp"
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_without_the_package_one_error_says_what_to_install(errors, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    code, lines = errors("mcp", MODEL)
    assert code == 2
    assert len(lines) == 1
    assert "`interp mcp` needs the package mcp" in lines[0]


def test_the_help_does_not_import_the_package():
    script = (
        "import sys\nfrom interp.cli.main import main\n"
        "try:\n    main(['mcp', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert 'mcp' not in sys.modules and 'mcp_types' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_a_tool_is_described_by_its_function():
    from interp.core.signature import read

    for tool in TOOLS.values():
        known = tool.parameters
        schema = tool.schema(["one", "two"])
        assert {*schema["properties"]} == {"model", *tool.takes}
        assert schema["properties"]["model"]["enum"] == ["one", "two"]
        assert tool.description.startswith(read(tool.target).doc.split("\n\n")[0].split("\n")[0])
        for name in tool.takes:
            stated = schema["properties"][name]
            assert stated["description"], (tool.name, name)
            if name not in tool.options and isinstance(known[name].default, int | str):
                assert stated["default"] == known[name].default


def test_a_model_is_loaded_when_it_is_first_asked_for(tmp_path):
    session = session_in(tmp_path, MODEL, "planted:nosuch")
    failed, text = call(session, "ledger", model=MODEL)
    assert not failed
    assert text.startswith("0 questions so far")
    failed, text = call(session, "ledger", model="planted:nosuch")
    assert failed
    assert "unknown planted model 'nosuch'" in text
    failed, text = call(session, "ledger")
    assert failed
    assert "'model' is a required property" in text


def test_a_model_is_loaded_once(tmp_path):
    loads = []
    session = session_in(tmp_path)
    for _ in range(2):
        answer = session.answer(TOOLS["ledger"], {}, lambda *step: loads.append(step[0]))
        assert answer.startswith("0 questions so far")
    assert loads.count("loading") == 2  # begun and done, of one load


def test_progress_over_several_steps_only_grows(monkeypatch):
    monkeypatch.setattr(server, "EVERY", 0)
    seen = []

    class Seen:
        async def report_progress(self, value, total, message):
            seen.append((value, message))

    def work():
        report = server.step_reporter(Seen())
        for step in [("texts", 1, 2), ("texts", 2, 2), ("heads", 0, 900), ("heads", 900, 900)]:
            report(*step)
        report("heads", 1, 2)  # once more
        report("nothing to do", 0, 0)

    anyio.run(anyio.to_thread.run_sync, work)
    values = [value for value, _ in seen]
    assert values == sorted(set(values))
    assert seen[2][1] == "heads, 0 of 900"


def test_one_computation_runs_at_a_time(tmp_path, monkeypatch):
    session = session_in(tmp_path)
    running = []

    def slow(tool, given, progress):
        running.append(1)
        time.sleep(0.1)
        progress("a step", 1, 2)
        assert len(running) == 1
        running.pop()
        return "done"

    monkeypatch.setattr(session, "answer", slow)

    async def conversation(client):
        results = []

        async def ask():
            results.append(await client.call_tool("ledger", {}))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(ask)
        return results

    assert [x.content[0].text for x in talk(session, conversation)] == ["done"] * 4


@pytest.mark.parametrize("debug", [False, True])
def test_an_unexpected_error_is_one_sentence(debug, tmp_path, monkeypatch, capsys):
    session = session_in(tmp_path, debug=debug)

    def broken(*args):
        raise ZeroDivisionError("by\n\x1b[31mnothing")

    monkeypatch.setattr(session, "answer", broken)
    failed, text = call(session, "ledger")
    assert failed
    assert text == ("ledger failed unexpectedly (by [U+001B][31mnothing); ask something else")

    assert ("Traceback" in capsys.readouterr().err) == debug

    def refused(*args):
        raise OptionError("give another\u202e name")

    monkeypatch.setattr(session, "answer", refused)
    assert call(session, "ledger") == (True, "give another[U+202E] name")


@pytest.mark.slow
def test_the_guide_shows_what_its_agent_prints(tmp_path):
    text = (ROOT / "docs/guides/agents.md").read_text(encoding="utf-8")
    code, shown = (
        re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0] for kind in ("python", "text")
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    # numbers may differ by rounding; tests of the tools compare them
    lines = [re.sub(r"\d*\.\d+(e-\d+)?", "#", part).split("\n") for part in (shown, done.stdout)]
    assert lines[0] == lines[1]
