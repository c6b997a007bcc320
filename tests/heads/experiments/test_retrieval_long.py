"""Long haystacks: the needle is found at any depth, in memory that grows with the length."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# In a process of its own: its highest memory is nobody else's.
RUN = """
import json, resource, time
import interp
from interp import planted
from interp.heads import needle

built = planted.induction(layers=2, heads=2, kv_heads=1, vocab=8, context=8192)
model = interp.load(built.model, name="long")
found = {}
base = None
for length in (512, 4000, 8000):
    instances = needle.ids_instances(
        model, needles=1, lengths=(length,), depths=(0.3,), answer=2
    )
    start = time.perf_counter()
    result = needle.copy_paste(model, instances)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    base = base or peak
    (head,) = built.roles["induction"]
    scores = result.score()
    found[length] = {
        "kib": peak - base,
        "seconds": time.perf_counter() - start,
        "right": result.right.tolist(),
        "mine": scores.pop(head),
        "others": max(scores.values()),
    }
print(json.dumps(found))
"""


@pytest.mark.slow
def test_eight_thousand_tokens_stream() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    found = {int(k): v for k, v in json.loads(done.stdout).items()}
    for length, at in found.items():
        assert set(at["right"]) == {1.0}, length
        assert at["mine"] == 1.0
        assert at["others"] == 0.0
    # one head's pattern of 8,000 tokens alone would take 250,000 KiB
    assert found[8000]["kib"] < 16 * 8000
    # twice the length: twice the memory, not four times
    assert found[8000]["kib"] < 3 * found[4000]["kib"] + 10_000
