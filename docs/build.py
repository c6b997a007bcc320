"""Offline site of the documentation: guides, notebooks, methods, commands, reference.

    python docs/build.py [--out FOLDER]     writes site/ by default

The same as `mkdocs build --strict`: a dead link, a page without a place in the menu, or a name of
the reference that does not exist fails. Needs MkDocs (`pip install 'interp[docs]'`).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(out: Path) -> int:
    """Write the site and return the number of its pages.

    Raises:
        click.exceptions.Exit: a warning, which MkDocs has printed.
    """
    from mkdocs.__main__ import cli

    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")  # about the theme's successor
    words = ["build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    cli([*words, "--site-dir", str(out.resolve())], standalone_mode=False)
    return sum(1 for _ in out.rglob("*.html"))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Write the documentation as a site.")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "site", help="folder; its content is replaced"
    )
    out = parser.parse_args().out
    print(f"{out / 'index.html'}: {build(out)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
