"""Every room at 8,192 tokens stays below the memory of one map of all queries by all keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from sampled import sampled

from benchmarks.long_contexts import measure, report
from benchmarks.long_contexts_rooms import ROOMS

TOKENS = 8_192
needs_peaks = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the system does not report peak memory"
)


@needs_peaks
@pytest.mark.parametrize("room", sampled(ROOMS))
def test_no_room_stores_a_map(room) -> None:
    # a map is larger than any free block that this process still holds, so that it adds to the peak
    assert measure(room, TOKENS)["growth_mib"] < TOKENS**2 * 4 / 2**20


def test_the_page_names_every_room_and_what_failed() -> None:
    about = dict.fromkeys(("torch", "transformers", "python", "machine", "threads"), "x")
    rows = [
        {"room": "view", "tokens": 2048, "growth_mib": 5.2, "processor_seconds": 0.51},
        {"room": "rollout", "tokens": 2048, "failed": "no memory"},
    ]
    page = report({"about": about, "rows": rows})
    assert "| viewer, page written | 5 |" in page
    assert "| rollout | failed |" in page
    assert "- rollout, 2,048: no memory" in page
    assert "| one map | 16 |" in page
