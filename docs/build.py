"""Offline site of the documentation: guides, notebooks, methods, commands, reference.

    python docs/build.py [--out FOLDER]     writes docs/site/ by default
    python docs/build.py --without-running  shows notebooks without outputs: minutes faster

Needs pdoc and nbclient (`pip install 'interp[docs]'`). Exits with 1 if a public name has no
docstring, and fails if a notebook does.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # its neighbours, however it is called

import pages  # noqa: E402 - after the line above
import reference  # noqa: E402
import stories  # noqa: E402


def build(out: Path, *, run: bool = True) -> list[str]:
    """Write the site and return the public names without a docstring."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    pages.write(out)
    stories.write(out, run=run)
    return reference.write(out / "api")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Write the documentation as a site.")
    parser.add_argument(
        "--out", type=Path, default=HERE / "site", help="folder; its content is replaced"
    )
    parser.add_argument(
        "--without-running", action="store_true", help="show notebooks without outputs"
    )
    given = parser.parse_args()
    out = given.out
    missing = build(out, run=not given.without_running)
    for name in missing:
        print(f"no docstring: {name}", file=sys.stderr)
    print(f"{out / 'index.html'}: {sum(1 for _ in out.rglob('*.html'))} pages")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
