"""Streams that are searched when one is first asked for: reading attention needs none.

The search runs the model once more, in which every layer writes noise (see `streams`). Half of the
time of loading a small model would go there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from threading import Lock
from weakref import ref

import torch
from torch import nn

from interp.core.interrupts import held
from interp.model.calls.sites import Site, Where
from interp.model.hooks.inference import aside
from interp.model.locate.find_sites import Event, Ran, outline
from interp.model.locate.streams import find_streams, layers_of, stirred
from interp.model.precision import float64_or_less

Record = Callable[[nn.Module, AbstractContextManager[None]], list[Event]]
"""Function that records a run of a module inside a context manager."""


class _Search:
    """Search for the streams of all sites of a model, made once.

    Args:
        model: the module; it is not kept alive.
        sites: its attention sites.
        runs: outline of an unchanged run.
        record: function that records a run of the module inside a context manager.
    """

    def __init__(
        self,
        model: nn.Module,
        sites: Sequence[Site],
        runs: Sequence[Ran],
        record: Record,
    ) -> None:
        self.model, self.sites, self.runs, self.record = ref(model), list(sites), runs, record
        self._found: list[dict[str, Where]] | None = None
        self._lock = Lock()

    def found(self) -> list[dict[str, Where]]:
        """Return the streams of each site; none if the model is gone and nobody asked before."""
        with held(), self._lock:  # an interrupt at the end of the block would leave it locked
            if self._found is None:
                model = self.model()
                if model is None:
                    return [{} for _ in self.sites]
                # hooks and edits of a run that asks in between must not act on this one
                self._found = aside(lambda: self._run(model))
            return self._found

    def _run(self, model: nn.Module) -> list[dict[str, Where]]:
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        with float64_or_less(device):
            noise = stirred(model, self.runs, self.sites, layers_of(model, self.sites, self.runs))
            return find_streams(model, self.record(model, noise), self.sites)


class Streams(Mapping[str, Where]):
    """Streams of one site, searched when first asked for; results that hold one stay small."""

    def __init__(self, search: _Search, number: int) -> None:
        self._search, self._number = search, number

    def _found(self) -> dict[str, Where]:
        return self._search.found()[self._number]

    def __getitem__(self, name: str) -> Where:
        return self._found()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())

    def __repr__(self) -> str:
        return repr(self._found())

    def __reduce__(self) -> tuple[type[dict], tuple[dict[str, Where]]]:
        return dict, (dict(self),)


def with_streams(
    model: nn.Module,
    sites: Sequence[Site],
    events: Sequence[Event],
    record: Record,
) -> list[Site]:
    """Return the sites with streams that are searched when first asked for."""
    search = _Search(model, sites, outline(events), record)
    return [replace(site, streams=Streams(search, i)) for i, site in enumerate(sites)]
