"""`interp explore`: its address, its errors, and how it ends."""

from __future__ import annotations

import builtins
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest


@pytest.fixture
def served():
    """Start the command in a process of its own; give the process and the address it prints."""
    processes = []

    def start(*args):
        command = [
            sys.executable,
            "-m",
            "interp",
            "explore",
            *map(str, args),
            "--set",
            "browser=false",
        ]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        processes.append(process)
        ready, _, _ = select.select([process.stdout], [], [], 60)
        assert ready, "the command printed nothing within a minute"
        return process, process.stdout.readline().strip()

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ask(address, path="/", **options):
    base, _, token = address.partition("/?token=")
    request = urllib.request.Request(base + path, **options)
    request.add_header("X-Interp-Token", token)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_this_machine_until_it_is_stopped(served, number, tmp_path):
    process, address = served("bundled:induction")
    assert address.startswith("http://127.0.0.1:")
    page = ask(address)
    assert "Try a prompt" in page
    assert "connect-src 'self'" in page
    given = json.dumps({"text": "The cat sat. The cat"}).encode()
    assert json.loads(ask(address, "/api/prompt", data=given))["block"] == 1
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address.partition("?")[0], timeout=30)
    begun = time.monotonic()
    process.send_signal(number)
    assert process.wait(20) == 0
    assert time.monotonic() - begun < 15
    assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_two_addresses_have_two_tokens_and_a_port_can_be_chosen(served):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _, first = served("bundled:induction", "--set", f"port={port}")
    _, second = served("bundled:induction")
    assert first.startswith(f"http://127.0.0.1:{port}/?token=")
    assert first.partition("=")[2] != second.partition("=")[2]
    assert len(first.partition("=")[2]) >= 32


def test_a_port_in_use_is_one_line(errors):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, lines = errors(
            "explore", "bundled:induction", "--set", f"port={port}", "--set", "browser=false"
        )
    assert code == 2
    assert lines == [
        f"port {port} cannot be used (Address already in use); set another port, or 0 for any "
        "free one"
    ]


def test_two_models_are_refused(errors):
    code, lines = errors("explore", "bundled:induction", "bundled:one-layer")
    assert code == 2
    assert "give one" in lines[0]


def test_an_unknown_model_is_one_line(errors):
    code, lines = errors("explore", "bundled:inductoin")
    assert code == 2
    assert "bundled:inductoin" in lines[0] or "inductoin" in lines[0]


def test_without_the_server_packages_the_command_says_what_to_install(errors, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **options):
        if name.split(".")[0] in ("starlette", "uvicorn"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    code, lines = errors("explore", "bundled:induction")
    assert code == 2
    assert lines == [
        "`interp explore` needs the package starlette; install it: pip install 'interp[explore]'"
    ]
