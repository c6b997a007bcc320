"""Requests to servers that redirect, wait, or want to learn the key."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from interp.core.errors import LoadError
from interp.core.request import KEY, MOST, asked

SECRET = "sk-SECRET"
seen: list[tuple[str, str | None]] = []


class Hostile(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        seen.append((self.path, self.headers.get("Authorization")))
        answer = getattr(self, f"answer_{self.path.strip('/').replace('-', '_')}")
        try:
            answer()
        except OSError:  # the client has gone
            return

    def _send(self, code: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def answer_fine(self) -> None:
        self._send(200, b'{"data": 1}')

    def answer_here(self) -> None:
        self._send(302, Location="/fine")

    def answer_round(self) -> None:
        self._send(302, Location="/round")

    def answer_elsewhere(self) -> None:
        port = self.server.server_address[1]
        self._send(302, Location=f"http://localhost:{port}/fine")  # another name: another server

    def answer_ftp(self) -> None:
        self._send(302, Location="ftp://127.0.0.1/fine")

    def answer_echo(self) -> None:
        self._send(401, str(self.headers.get("Authorization")).encode())

    def answer_drip_body(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(100):
            self.wfile.write(b" ")
            time.sleep(0.05)

    def answer_drip_head(self) -> None:
        for _ in range(100):
            self.wfile.write(b"H")
            time.sleep(0.05)

    def answer_large(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(MOST + 2))
        self.end_headers()
        for _ in range(MOST // 2**20 + 1):
            self.wfile.write(b" " * 2**20)

    def answer_deep(self) -> None:
        self._send(200, b"[" * 200_000)

    def log_message(self, *args: object) -> None:
        return


@contextmanager
def served():
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_hostile_server_gets_no_key_and_no_time(monkeypatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    with served() as url:
        assert asked(f"{url}/fine", None) == asked(f"{url}/here", None) == {"data": 1}
        assert {key for _, key in seen} == {f"Bearer {SECRET}"}
        for path, told in {
            "elsewhere": "redirects to http://localhost",
            "ftp": "ftp",
            "round": "without end",
            "echo": r"401: Bearer \[the key\]",
            "large": "more than",
            "deep": "nested deeper",
            "drip-body": "whole",
            "drip-head": "whole",
        }.items():
            seen.clear()
            before = time.monotonic()
            with pytest.raises(LoadError, match=told) as caught:
                asked(f"{url}/{path}", None, timeout=0.5 if "drip" in path else 20.0)
            assert SECRET not in str(caught.value)
            assert "drip" not in path or time.monotonic() - before < 3
            assert {at for at, _ in seen} == {f"/{path}"}, "another address was asked"


@pytest.mark.parametrize("key", [f"{SECRET}\nX-Other: 1", f"{SECRET}\x1b", "schlüssel"])
def test_a_key_that_is_no_header_is_not_printed(monkeypatch, key: str) -> None:
    monkeypatch.setenv(KEY, key)
    with pytest.raises(LoadError, match="set it again") as caught:
        asked("http://127.0.0.1:9/", None)
    assert SECRET not in str(caught.value)
    assert json.dumps(key)[1:-1] not in str(caught.value)


def test_an_address_with_a_password_is_refused() -> None:
    with pytest.raises(LoadError, match="a user or a password") as caught:
        asked("http://me:hidden@127.0.0.1:9/", None)
    assert "hidden" not in str(caught.value)
