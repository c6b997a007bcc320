"""Serve the page on this machine alone, until Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import webbrowser
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from interp.core.errors import OptionError
from interp.core.installed import package_error

if TYPE_CHECKING:
    from interp.report.explore.session import Session

HOST = "127.0.0.1"


def require_server() -> None:
    """Check that the packages of the server are installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        install = "pip install 'interp[explore]'"
        raise package_error(error, "`interp explore`", package, install) from error


def listening(port: int) -> socket.socket:
    """Return a socket of this machine alone that listens at a port; 0 is any free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise OptionError(
            f"port {port} cannot be used ({error.strerror}); set another port, "
            "or 0 for any free one"
        ) from error
    return listener


def _ended_quietly(app: Any) -> Any:
    """Return an application whose requests may be cancelled, as slow ones are at the end."""
    import asyncio

    async def run(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return run


def serve(
    page: Callable[[str], str],
    session: Session | None,
    *,
    atlas: Mapping[str, Any] | None = None,
    port: int = 0,
    browser: bool = True,
    tell: Callable[[str], None] = print,
) -> None:
    """Serve a page and its session until Ctrl-C."""
    require_server()
    from interp.report.explore.app import application

    opened = listening(port)
    with opened:
        number = opened.getsockname()[1]
        token = secrets.token_urlsafe(24)
        address = f"http://{HOST}:{number}/?token={token}"
        tell(address)
        if browser:
            webbrowser.open(address)
        # a pass over a long prompt would keep the server waiting
        stop = (lambda: None) if session is None else session.stop
        run_application(application(page, session, token, number, atlas), opened, stop)


def run_application(
    app: Any,
    opened: socket.socket,
    stop: Callable[[], None],
    lifespan: Literal["on", "off"] = "off",
) -> None:
    """Answer the requests to a socket until Ctrl-C, which calls `stop` first."""
    import uvicorn

    config = uvicorn.Config(
        _ended_quietly(app),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        lifespan=lifespan,
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)
    ended = server.handle_exit

    def end(sig: int, frame: FrameType | None) -> None:
        stop()
        # what follows is that slow readers were left, each with a traceback
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        ended(sig, frame)

    server.handle_exit = end
    try:
        server.run(sockets=[opened])
    except KeyboardInterrupt:  # raised again by uvicorn after its clean end
        return
