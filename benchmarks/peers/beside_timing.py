"""Time and memory of tasks on a model that a script has loaded; for `benchmarks/beside.py`.

A script is called as `SCRIPT folder inputs.json out.json` and imports nothing of interp. It calls
`measure` with a function that loads the folder, and one per row of the table. The first call of a
row gives its values and the memory it adds, the second its processor time; a long one runs once.
"""

import gc
import json
import re
import sys
import time
from pathlib import Path

LONG = 10.0  # seconds of processor time; what is made at the first call is then a small part


def peak():
    """Return the largest resident memory since the last reset, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status).group(1)) / 1024


def measure(load, tasks):
    """Load the model, run every task twice, and write what was measured."""
    import torch

    torch.set_num_threads(1)
    folder, inputs, out = sys.argv[1:4]
    inputs = json.loads(Path(inputs).read_text())
    model = load(folder)
    rows = {"loading": {"seconds": time.process_time(), "mib": peak()}}
    for name, task in tasks.items():
        try:
            rows[name] = _measured(lambda task=task: task(model, inputs))
        except Exception as error:
            last = (str(error).strip().splitlines() or [""])[-1]
            rows[name] = {"error": f"{type(error).__name__}: {last}"[:200]}
        Path(out).write_text(json.dumps(rows))


def _measured(run):
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, start = peak(), time.process_time()
    values = run()
    seconds, mib = time.process_time() - start, peak() - before
    if seconds < LONG:
        gc.collect()
        start = time.process_time()
        run()
        seconds = time.process_time() - start
    return {"seconds": seconds, "mib": mib, "values": values}
