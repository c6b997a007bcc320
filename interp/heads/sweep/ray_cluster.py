"""A cluster of Ray: found, started and left."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from interp.core.errors import OptionError

_ANSWERS_S = 5.0  # seconds in which a cluster must answer
_PORT = 6379  # of a cluster, unless the address names another


def require_cluster(address: str, stored: bool) -> None:
    """Check that Ray is installed, that results have a folder, and that the cluster answers."""
    if not stored and address not in ("local", "auto"):
        raise OptionError("--ray needs --out, a folder that all machines of the cluster see")
    if find_spec("ray") is None:
        raise OptionError("--ray needs the package ray; install it: pip install 'interp[ray]'")
    if address in ("local", "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        host, port = port, str(_PORT)
    try:
        with socket.create_connection((host, int(port)), timeout=_ANSWERS_S):
            return
    except (OSError, ValueError) as error:
        raise OptionError(
            f"no Ray cluster answers at {address} ({error}); check the address (host:port of the "
            "head node), or use --ray local"
        ) from error


@contextmanager
def ray_cluster(address: str, jobs: int) -> Iterator[Mapping[str, float]]:
    """Use a cluster, and yield its resources; one that was started here ends in the end."""
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: others would starve them
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # the first of them is raised here
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == "local":
        options |= {"include_dashboard": False, "num_cpus": jobs if jobs > 1 else None}
    _connect(address, options)
    try:
        yield ray.cluster_resources()
    finally:
        ray.shutdown()


def _connect(address: str, options: Mapping[str, Any]) -> None:
    """Start a cluster or connect to one, without Ray's own lines about a failure."""
    import ray

    try:
        with _stderr_kept() as stderr:
            ray.init(address=None if address == "local" else address, **options)
    # Ray starts several processes and raises whatever any of them meets; it may also exit
    except (Exception, SystemExit) as error:
        text = " ".join((str(error) or stderr()).split())[-300:]
        what = "cluster does not start" if address == "local" else f"cluster at {address} fails"
        raise OptionError(
            f"Ray's {what}: {type(error).__name__}: {text}; run it without --ray, "
            "such as with --jobs"
        ) from error


@contextmanager
def _stderr_kept() -> Iterator[Callable[[], str]]:
    """Keep what any library writes to file descriptor 2; yield a function that returns it."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        text = ""
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: text
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            text = file.read().decode("utf-8", "replace")
