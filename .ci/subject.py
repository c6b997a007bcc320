"""Check the subjects of commits: at most 72 characters, a capital letter, no full stop.

python .ci/subject.py FILE          the message that a commit-msg hook is given
python .ci/subject.py main..HEAD    the commits of a range
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MOST = 72


def problems(subject: str) -> list[str]:
    """Return what is wrong with a subject."""
    found = []
    if len(subject) > MOST:
        found.append(f"it has {len(subject)} characters; {MOST} are allowed")
    if not subject[:1].isupper():
        found.append("it begins with no capital letter")
    if subject.endswith("."):
        found.append("it ends with a full stop")
    return found


def main(given: str) -> int:
    """Print the problems of the subjects in a file or a range."""
    if Path(given).is_file():
        subjects = Path(given).read_text(encoding="utf-8").splitlines()[:1]
    else:
        log = ["git", "log", "--no-merges", "--format=%s", given]
        subjects = subprocess.run(log, capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )
    wrong = [(s, p) for s in subjects if s for p in problems(s)]
    for subject, problem in wrong:
        print(f"{subject}\n    {problem}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
