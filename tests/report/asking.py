"""Requests to a web application in this process, without a socket."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

PORT = 8123
TOKEN = "a-secret-token"
TEXT = "The cat sat on the mat. The cat sat on the"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks with the right Host and token, unless told otherwise."""

    def __init__(self, app: Any):
        self.app = app

    def get(self, path: str, *, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return asyncio.run(self.ask("GET", path, b"", headers, query))

    def post(self, path: str, given: Any, *, headers: dict[str, str] | None = None) -> Answer:
        body = given if isinstance(given, bytes) else json.dumps(given).encode()
        return asyncio.run(self.ask("POST", path, body, headers, {}))

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        query: dict[str, Any] | None = None,
    ) -> Answer:
        sent = {"host": f"127.0.0.1:{PORT}", "x-interp-token": TOKEN} | (headers or {})
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": urlencode(query or {}).encode(),
            "client": ("127.0.0.1", 1),
            "headers": [(k.encode(), v.encode()) for k, v in sent.items()],
        }
        parts, found = [{"type": "http.request", "body": body, "more_body": False}], []

        async def receive() -> Any:
            return parts.pop(0) if parts else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            found.append(message)

        await self.app(scope, receive, send)
        start = {k.decode(): v.decode() for k, v in found[0]["headers"]}
        content = b"".join(one.get("body", b"") for one in found[1:])
        return Answer(found[0]["status"], start, content)


def asked(client, text=TEXT):
    answer = client.post("/api/prompt", {"text": text})
    assert answer.status == 200, answer.body
    return answer.data
