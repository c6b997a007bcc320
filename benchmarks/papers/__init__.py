"""Tests of the claims of papers, a file for each kind; `finding.claim` registers them."""

from importlib import import_module
from pathlib import Path

for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    import_module(f"{__name__}.{path.stem}")
