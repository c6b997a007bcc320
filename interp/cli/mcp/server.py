"""The server: requests of the protocol, one computation at a time, over two transports."""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interp.cli.mcp.session import LONGEST_ANSWER
from interp.cli.mcp.tools import TOOLS
from interp.core.errors import InterpError, error_line
from interp.core.installed import package_error, version
from interp.core.tokens import visible

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from interp.cli.mcp.session import AgentSession

PATH = "/mcp"
EVERY = 0.2  # seconds between two reports of progress
BEARER = (
    "give the token that `interp mcp` printed, as `Authorization: Bearer TOKEN` or ?token=TOKEN"
)


def require_protocol() -> None:
    """Check that the package of the protocol is installed."""
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        install = "pip install 'interp[mcp]'"
        raise package_error(error, "`interp mcp`", "mcp", install) from error


def agent_server(session: AgentSession) -> Server[Any]:
    """Return the server of the tools and result files of one session."""
    import anyio
    import mcp_types as types
    from anyio import to_thread
    from mcp.server.lowlevel import Server
    from mcp.shared.exceptions import MCPError

    turn = anyio.Lock()

    async def list_tools(context: Any, given: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=each.name,
                    description=each.description,
                    input_schema=each.schema(session.models),
                )
                for each in TOOLS.values()
            ]
        )

    async def call_tool(context: Any, given: types.CallToolRequestParams) -> types.CallToolResult:
        tool = TOOLS.get(given.name)
        if tool is None:
            known = f"unknown tool {visible(given.name)[:60]!r}; known: {', '.join(TOOLS)}"
            raise MCPError(types.INVALID_PARAMS, known)
        asked, failed = given.arguments or {}, True
        async with turn:
            try:
                progress = step_reporter(context.session)
                text = await to_thread.run_sync(session.answer, tool, asked, progress)
                failed = False
            except InterpError as error:
                text = str(error)
            except Exception as error:  # one wrong question must not end the others
                if session.debug:
                    traceback.print_exception(error)
                text = f"{tool.name} failed unexpectedly ({error_line(error)}); ask something else"
        # half a character of a token cannot be sent
        sent = visible(text).encode(errors="replace").decode()[:LONGEST_ANSWER]
        content = types.TextContent(type="text", text=sent)
        return types.CallToolResult(content=[content], is_error=failed)

    async def refusing(function: Callable[..., Any], *args: str) -> Any:
        try:
            return await to_thread.run_sync(function, *args)
        except InterpError as error:
            raise MCPError(types.INVALID_PARAMS, visible(str(error))) from error

    async def list_resources(context: Any, given: Any) -> types.ListResourcesResult:
        found = await refusing(session.results.listed)
        every = [types.Resource(name=visible(x.name), uri=uri) for uri, x in found.items()]
        return types.ListResourcesResult(resources=every)

    async def read_resource(
        context: Any, given: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        text, kind = await refusing(session.results.read, str(given.uri))
        content = types.TextResourceContents(uri=given.uri, mime_type=kind, text=text)
        return types.ReadResourceResult(contents=[content])

    return Server(
        "interp",
        version=version(),
        instructions="Tools to study what attention heads do. Begin with list_heads, look with"
        " head, examples and pattern, and have a claim tested by judge, on fresh documents. Every"
        f" question to judge is counted: ask few. Models: {visible(', '.join(session.models))}.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def step_reporter(session: Any) -> Callable[[str, int, int], None]:
    """Return what a step of a computation calls, in its thread: it raises once it is cancelled."""
    from anyio import from_thread

    begun, before, last = 0, ("", 0), 0.0

    def report(step: str, done: int, total: int) -> None:
        nonlocal begun, before, last
        from_thread.check_cancelled()
        begun += step != before[0] or done < before[1]  # what is reported may only grow
        before = step, done
        if time.monotonic() - last < EVERY:
            return
        last = time.monotonic()
        value = begun + min(done / max(total, 1), 1) * 0.99
        message = f"{step.strip()}, {done:,} of {total:,}"
        from_thread.run(session.report_progress, value, None, message)

    return report


def serve_standard(session: AgentSession) -> None:
    """Serve over standard input and output, until the input ends; prints go to stderr."""
    import anyio
    from mcp.server.stdio import stdio_server

    server = agent_server(session)

    async def run() -> None:
        async with stdio_server() as (read, write):
            with contextlib.redirect_stdout(sys.stderr):  # at once, not when a buffer is full
                await server.run(read, write, server.create_initialization_options())

    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how a user stops it
        anyio.run(run)


def serve_http(session: AgentSession, port: int, tell: Callable[[str], None]) -> None:
    """Serve this machine by HTTP, with a token, until Ctrl-C."""
    from interp.report.explore.server import HOST, listening, run_application

    with listening(port) as opened:
        number, token = opened.getsockname()[1], secrets.token_urlsafe(24)
        tell(f"http://{HOST}:{number}{PATH}?token={token}")
        run_application(guarded_application(session, token, number), opened, lambda: None, "on")


def guarded_application(session: AgentSession, token: str, port: int) -> Any:
    """Return the application that answers this machine alone, and only with the token."""
    from starlette.requests import Request

    from interp.report.explore.app import refusal

    app = agent_server(session).streamable_http_app(streamable_http_path=PATH)

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        why = None if scope["type"] == "lifespan" else refusal(Request(scope), token, port, BEARER)
        await (why or app)(scope, receive, send)

    return guarded
