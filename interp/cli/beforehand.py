"""Notes that say how long a step will take, soon after it starts."""

from __future__ import annotations

import time
from collections.abc import Callable

LONG = 60.0  # seconds; a command whose expected time is below says nothing
SOON = 2.0  # seconds after which the rest of a step is estimated from its start
PART = 50  # of all units, as a divisor: the first units may take longer than the others


def beforehand(
    tell: Callable[[str, int, int], None], note: Callable[[str], None], name: str
) -> Callable[[str, int, int], None]:
    """Return a progress callback that also notes the expected seconds of each long step.

    Args:
        tell: The callback that it passes everything on to.
        note: Called with one line per step with which the whole passes `LONG` seconds.
        name: Name of the model.
    """
    begun = time.monotonic()
    started: dict[str, tuple[float, int]] = {}
    said: set[str] = set()

    def told(what: str, done: int, total: int) -> None:
        tell(what, done, total)
        now = time.monotonic()
        start, before = started.setdefault(what, (now, done))
        few = done - before < max(2, total / PART)
        if what in said or now - start < SOON or few or done >= total:
            return
        rest = (now - start) / (done - before) * (total - done)
        said.add(what)
        if now - begun + rest > LONG:
            note(f"{name}: {what} takes about {rest:.0f} s more; Ctrl-C keeps what is finished")

    return told
