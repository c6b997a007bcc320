"""A request to the server of a stranger, within a time and a size, whose key stays secret."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from queue import Empty, Queue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from interp.core.documents import parse_json
from interp.core.errors import LoadError, error_line

KEY = "INTERP_ENDPOINT_KEY"
"""Environment variable with the key that is sent to the endpoint, if it needs one."""
MOST = 2**24  # bytes of a reply that are read
_REDIRECTS = 5  # that are followed, to the same server


def asked(url: str, sent: Mapping[str, Any] | None, timeout: float = 60.0) -> Any:
    """Return the JSON that a server answers; without anything to send, a page is fetched.

    The key goes to the server of the address alone: a redirect to another one is refused.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise LoadError(f"{url!r} is not an address of http or https")
    if "@" in parts.netloc:
        raise LoadError(f"the address names a user or a password; set the key as {KEY} instead")
    key = os.environ.get(KEY, "").strip()
    if not re.fullmatch("[!-~]*", key):  # the client would print it
        raise LoadError(
            f"{KEY} holds a line break or another character that no key has; set it again"
        )
    replies: Queue[Any] = Queue()

    def ask() -> None:
        try:
            replies.put(_reply(url, sent, key, time.monotonic() + timeout))
        except BaseException as error:  # raised again in the thread that waits
            replies.put(error)

    # in a thread: a server may send the head of its answer byte by byte, without end
    Thread(target=ask, daemon=True).start()
    try:
        reply = replies.get(timeout=timeout + 1)
    except Empty:
        raise LoadError(f"{url} did not answer whole within {timeout:g} s") from None
    if not isinstance(reply, BaseException):
        return reply
    if not isinstance(reply, LoadError):
        raise reply
    message = str(reply)
    raise LoadError(message.replace(key, "[the key]") if key else message) from None


def served_model(url: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the base of an API, the name of the model asked for, and all that the server lists.

    The address may end with #NAME; the first model that is listed is taken if it does not.
    """
    base, _, name = url.partition("#")
    base = base.rstrip("/").removesuffix("/completions").removesuffix("/chat")
    if not urlsplit(base).path:
        base += "/v1"
    try:
        listed = asked(f"{base}/models", None)
        models: tuple[str, ...] = tuple(str(one["id"]) for one in listed["data"])
        why = f"{base}/models lists no models"
    except (LoadError, KeyError, TypeError) as error:
        models, why = (), error_line(error)
    name = name or next(iter(models), "")
    if not name:
        raise LoadError(f"{why}; if the server runs, name the model after #, as in {base}#NAME")
    return base, name, models


def _reply(url: str, sent: Mapping[str, Any] | None, key: str, end: float) -> Any:
    """Return the JSON that a server answers before a time of the monotonic clock."""
    import httpx2 as httpx

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(timeout=max(end - time.monotonic(), 0.01), headers=headers) as client:
            request = client.build_request("GET" if sent is None else "POST", url, json=sent)
            for _ in range(_REDIRECTS + 1):
                reply = client.send(request, stream=True)
                if reply.next_request is None:
                    break
                to = reply.next_request.url
                if _server(to) != _server(request.url):
                    raise LoadError(f"{url} redirects to {to}; give that address if you trust it")
                reply.close()
                request = reply.next_request
            else:
                raise LoadError(f"{url} redirects without end")
            content = _content(reply, url, end)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise LoadError(f"{url} does not answer: {error_line(error)}") from error
    if reply.status_code >= 300:
        message = " ".join(content[:300].decode(errors="replace").split())
        hint = f"; a key is read from {KEY}" if reply.status_code in (401, 403) else ""
        raise LoadError(f"{url} answers {reply.status_code}: {message}{hint}")
    try:
        return parse_json(content)
    except ValueError as error:
        raise LoadError(f"{url} did not return JSON: {error}") from error


def _content(reply: Any, url: str, end: float) -> bytes:
    """Return the body of an answer; raises LoadError if it is too long or comes too slowly."""
    content = b""
    for part in reply.iter_bytes():
        content += part
        if len(content) > MOST:
            raise LoadError(f"{url} returned more than {MOST:,} bytes")
        if time.monotonic() > end:
            raise LoadError(f"{url} did not answer whole in time")
    return content


def _server(url: Any) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
