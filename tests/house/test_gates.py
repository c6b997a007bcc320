"""Text of strangers has one way in and one way out: each kind of reader and writer stands once."""

from __future__ import annotations

import re
from pathlib import Path

import interp

PACKAGE = Path(interp.__file__).parent
ONLY = {
    r"json\.loads\((?!json\.dumps)|json\.load\(|tomllib\.loads?\(": {
        "core/documents.py",  # within limits
        "core/json_document.py",  # of what it has just written
    },
    r"\.to_csv\(index|csv\.writer\(|DictWriter": {"core/csv_rows.py"},
    r"click\.s?echo\(|sys\.std(out|err)\.write|os\.write\(": {"cli/wrapping.py"},
    r"(?<![\w.`])print\((?!\))": {
        "testing/metric.py",  # pictures of docstrings, which doctest compares
        "syntax/categories/_made.py",  # a program among the labelled texts
        "cli/main.py",
    },
    r"Console\(": {
        "cli/progress.py",  # behind the gate, with labels that passed it
        "report/printed/attribution.py",  # captured
    },
    r"gzip|bz2|lzma|tarfile|zipfile|urlopen|requests\.get": {"profiles/sources.py"},
    r"import httpx|httpx\.": {"core/request.py", "model/sources/nnsight.py"},
}
"""What must stand in these files only."""


def test_there_is_no_second_way() -> None:
    texts = {p.relative_to(PACKAGE).as_posix(): p.read_text() for p in PACKAGE.rglob("*.py")}
    for pattern, places in ONLY.items():
        there = {
            name
            for name, text in texts.items()
            if re.search(pattern, re.sub(r'(?s)""".*?"""|#[^\n]*', "", text))
        }
        assert there <= places, (pattern, there - places)
