"""The web application: the page, and an API in JSON that reads and never writes.

| route | what |
|---|---|
| `GET /` | the page |
| `GET /api/atlas` | the atlas as data (`interp.report.atlas.document`), or its absence as 400 |
| `POST /api/prompt` | `{"text": ...}` or `{"ids": [...]}`: every head; see `Session.prompt` |
| `GET /api/progress` | the layers that a running prompt has passed; `Session.progress` |
| `GET /api/pattern?prompt=&head=&after=` | all weights of a head; see `Session.pattern` |
| `GET /api/tile?prompt=&head=&block=&row=&column=&turn=` | a tile of a long one; `Session.tile` |
| `GET /api/rules?prompt=` | which rules fire where; `Session.rules` |
| `GET /api/explain?prompt=&head=&query=&key=&after=` | what explains a row; `Session.explain` |
| `GET /api/heads?prompt=&head=&query=&key=&after=` | heads by their weight; `Session.heads` |
| `POST /api/ablate` | `{"prompt":, "heads": [...], "intervention":, ...}`; see `Session.ablate` |
| `POST /api/write` | the same without `position`: both continuations; see `Session.write` |

Every request carries the token, as `?token=`, as the header `X-Interp-Token` or as a bearer token;
without it the answer is 403, and so it is to a page of another origin. A wrong value is 400 with
`{"error": ..., "kind": ...}`, a request that a newer one replaced 409, a body above the limit 413.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from interp.core.documents import parse_json
from interp.core.errors import InterpError
from interp.core.tokens import visible
from interp.report.explore.requests import NewerRequest, numbers
from interp.report.explore.session import TYPES, answer

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from interp.report.explore.session import Session

BODY = 8_000_000  # bytes
HEADER = "x-interp-token"
NAMES = ("127.0.0.1", "localhost")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# the policy of the page stands in the page, with the hashes of its style and scripts
PAGE_HEADERS = {k: v for k, v in HEADERS.items() if k != "Content-Security-Policy"}


def refusal(request: Request, token: str, port: int, remedy: str) -> Response | None:
    """Return the answer to a request of another host or page, or without the token; else None."""
    hosts = {f"{name}:{port}" for name in NAMES}
    if request.headers.get("host", "").lower() not in hosts:
        return _error(403, "Host", f"this server answers to {' and '.join(sorted(hosts))} only")
    origin = request.headers.get("origin")
    if origin is not None and origin.lower() not in {f"http://{host}" for host in hosts}:
        return _error(403, "Origin", "this server answers to its own page only")
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    credential = request.headers.get(HEADER) or bearer or request.query_params.get("token", "")
    if not secrets.compare_digest(credential.encode(), token.encode()):
        return _error(403, "Token", remedy)
    return None


def application(
    page: Callable[[str], str],
    session: Session | None,
    token: str,
    port: int,
    atlas: Mapping[str, Any] | None = None,
) -> Starlette:
    """Return the application for one page and, where there is a model, one session."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    def guarded(
        inside: Callable[[Request], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            why = refusal(request, token, port, "open the address that `interp explore` printed")
            return why or await inside(request)

        return endpoint

    async def show(request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(page, token), headers=PAGE_HEADERS)

    async def results(request: Request) -> Response:
        if atlas is None:
            return _error(400, "OptionError", "there are no results, only a model")
        return _json(atlas)

    async def answered(call: str, given: Any) -> Response:
        try:
            return _json(await run_in_threadpool(answer, session, call, given))
        except NewerRequest as error:
            return _error(409, "NewerRequest", str(error))
        except InterpError as error:
            return _error(400, type(error).__name__, str(error))

    def query(call: str) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            arguments = {k: v for k, v in request.query_params.items() if k != "token"}
            try:
                return await answered(call, numbers(arguments, *TYPES[call]))
            except InterpError as error:
                return _error(400, type(error).__name__, str(error))

        return endpoint

    def body(call: str) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            content = b""
            async for part in request.stream():
                content += part
                if len(content) > BODY:
                    return _error(413, "PromptError", f"the request exceeds {BODY / 1e6:g} MB")
            try:
                body = parse_json(content)
            except (ValueError, RecursionError) as error:
                return _error(400, "OptionError", f"the body is not JSON in UTF-8: {error}")
            return await answered(call, body)

        return endpoint

    return Starlette(
        routes=[
            Route("/", guarded(show), methods=["GET"]),
            Route("/api/atlas", guarded(results), methods=["GET"]),
            Route("/api/prompt", guarded(body("prompt")), methods=["POST"]),
            Route("/api/ablate", guarded(body("ablate")), methods=["POST"]),
            Route("/api/write", guarded(body("write")), methods=["POST"]),
            *(Route(f"/api/{name}", guarded(query(name)), methods=["GET"]) for name in TYPES),
            Route("/{other:path}", guarded(_missing)),
        ]
    )


async def _missing(request: Request) -> Response:
    return _error(404, "OptionError", "there is no such address here")


def _error(status: int, kind: str, message: str) -> Response:
    return _json({"error": message, "kind": kind}, status)


def _json(content: Any, status: int = 200) -> Response:
    from starlette.responses import Response

    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # a lone surrogate of a token cannot be written in UTF-8
    body = visible(text).encode("utf-8", "replace")
    return Response(body, status, HEADERS, "application/json")
