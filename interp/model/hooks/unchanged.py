"""A module is after a run what it was before it, whatever its forward does to itself.

Some families change themselves as they run: BigBird exchanges its attention for another kind on a
short input and keeps it; rotary embeddings that grow with the input keep the frequencies of the
longest so far. The next run, ours or the caller's, would give other numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any

from torch import nn

_PLAIN = frozenset({bool, int, float, str, tuple, type(None)})
_OURS = ("training", "forward")  # switched by runs, and switched back by them
_lock = RLock()


class Snapshot:
    """Submodules, buffers and plain settings of a module and its configs, as they are now."""

    def __init__(self, module: nn.Module) -> None:
        self._holders: list[tuple[nn.Module, dict, dict, _Settings]] = []
        configs: dict[int, Any] = {}
        for m in module.modules():
            own = m.__dict__
            if not m._modules and not m._buffers and type(m).__module__.startswith("torch.nn."):
                continue  # layers of torch's own change nothing in themselves
            self._holders.append((m, dict(m._modules), dict(m._buffers), _Settings(own)))
            config = own.get("config")
            if config is not None and hasattr(config, "__dict__"):
                configs[id(config)] = config
        self._configs = [(config, _Settings(config.__dict__)) for config in configs.values()]

    def exchanged(self) -> list[str]:
        """Names of the submodules that are others now, within the modules that hold them."""
        return [
            f"{type(m).__name__}.{name}"
            for m, modules, _, _ in self._holders
            for name, was in modules.items()
            if m._modules.get(name) is not was
        ]

    def restore(self) -> None:
        """Put everything back that is not as it was."""
        for m, modules, buffers, settings in self._holders:
            for have, had in ((m._modules, modules), (m._buffers, buffers)):
                same = len(have) == len(had) and all(have.get(k) is x for k, x in had.items())
                if not same:
                    have.clear()
                    have.update(had)
            settings.put_back(m.__dict__)
        for config, settings in self._configs:
            settings.put_back(config.__dict__)


def _plain(own: dict[str, Any]) -> dict[str, Any]:
    return {k: x for k, x in own.items() if type(x) in _PLAIN and k not in _OURS}


class _Settings:
    """Plain attributes of one object, and the names of all that it had."""

    def __init__(self, own: dict[str, Any]) -> None:
        self.plain, self.names = _plain(own), frozenset(own)

    def put_back(self, own: dict[str, Any]) -> None:
        """Remove plain attributes that are new, and give the others their values again.

        What was no plain value and is one now, such as a cached tensor that a run let go, stays.
        """
        for name in _plain(own).keys() - self.names:
            del own[name]
        for name, was in self.plain.items():
            if own.get(name) is not was:
                own[name] = was


class _Held:
    """The state that threads which run a module together found it in."""

    def __init__(self, module: nn.Module) -> None:
        self.snapshot = Snapshot(module)
        self.threads: Counter[int] = Counter()


_held: dict[int, _Held] = {}


@contextmanager
def unchanged(module: nn.Module) -> Iterator[Snapshot]:
    """After the block the module is as it was; where several threads run it, after the last."""
    thread = get_ident()
    with _lock:
        held = _held.get(id(module)) or _Held(module)
        _held[id(module)] = held
        held.threads[thread] += 1
    try:
        yield held.snapshot
    finally:
        with _lock:
            held.threads[thread] -= 1
            held.threads += Counter()  # drops the threads that have left
            if set(held.threads) <= {thread}:
                held.snapshot.restore()
            if not held.threads:
                del _held[id(module)]
