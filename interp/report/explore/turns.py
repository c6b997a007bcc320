"""Order of the requests to one model: one at a time, and a newer request replaces an older one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from interp.core.errors import InterpError

GoingOn = Callable[[], None]
LANES = ("prompt", "ablate", "write", "tile")


class NewerRequest(InterpError):
    """Request that a newer one made useless."""


class Turns:
    """One lock for the model, and the newest request of each kind.

    A newer prompt replaces every waiting or running request, since all of them read the prompt
    before it. A newer ablation replaces older ablations and what is written on them. Tiles are
    replaced by tiles of a later view of the map, which the caller numbers.
    """

    def __init__(self) -> None:
        self._model, self._numbers = threading.Lock(), threading.Lock()
        self._newest: dict[str, int] = dict.fromkeys(LANES, 0)
        self._prompts = 0
        self._stopped = False

    def stop(self) -> None:
        """End every waiting, running and later request."""
        self._stopped = True

    @contextmanager
    def taken(self, lane: str, turn: int | None = None) -> Iterator[GoingOn]:
        """Wait for the model and hold it; the yielded function raises once a newer request came."""
        with self._numbers:
            if lane == "prompt":
                self._prompts += 1
            elif lane in ("ablate", "write"):
                self._newest[lane] += 1
                self._newest["write"] += lane == "ablate"
            elif lane == "tile" and turn is not None:
                self._newest[lane] = max(self._newest[lane], turn)
            prompts = self._prompts
            mine = turn if lane == "tile" else self._newest.get(lane)

        def going_on() -> None:
            newer = mine is not None and self._newest.get(lane, 0) > mine
            if self._stopped:
                raise NewerRequest("the server stops")
            if newer or self._prompts > prompts:
                raise NewerRequest(
                    "a newer request replaced this one; ask again if it is still needed"
                )

        with self._model:
            going_on()
            yield going_on
