"""Generated tables of docs/*.md, written into the pages between two marks.

    python docs/tables.py            writes the tables of every page again
    python docs/tables.py --check    names the pages whose tables are out of date, and exits with 1

The tables stand in the files, so that a reader of the repository finds them there.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # its neighbours, however it is called

import design_page  # noqa: E402 - after the line above
import literature_page  # noqa: E402
import method_table  # noqa: E402
import trust  # noqa: E402

TABLES = {
    "design_page": design_page.tables,
    "literature_page": literature_page.page,
    "method_table": method_table.page,
    "trust": trust.page,
}
MARKS = re.compile(
    r"(<!-- tables of (\w+): [^\n]* -->\n).*?(\n<!-- end of the tables -->)", re.DOTALL
)


def pages() -> list[Path]:
    """Return the pages that hold generated tables."""
    return [p for p in sorted(HERE.glob("*.md")) if MARKS.search(p.read_text(encoding="utf-8"))]


def written(path: Path) -> str:
    """Return the text of a page with its tables generated again."""
    text = path.read_text(encoding="utf-8")
    return MARKS.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}", text)


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check name those that are out of date."""
    stale = [path for path in pages() if written(path) != path.read_text(encoding="utf-8")]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.name} is out of date: run python docs/tables.py")
        return bool(stale)
    for path in stale:
        path.write_text(written(path), encoding="utf-8")
        print(f"{path.name}: tables written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
