"""Tests of the claims of papers, a file for each kind; `finding.claim` registers them.

A file that cannot be imported stops its own claims alone: `BROKEN` has its error.
"""

import traceback
from importlib import import_module
from pathlib import Path

BROKEN: dict[str, str] = {}
for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    try:
        import_module(f"{__name__}.{path.stem}")
    except Exception:
        BROKEN[path.stem] = traceback.format_exc()
