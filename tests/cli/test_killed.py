"""Commands that are killed at random moments, again and again, end as if they had not been."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from core.kept import rows, unfinished

PAIRS = [(a, b) for a in ("dog", "cat", "man") for b in ("cat", "dog") * 30]
TEXTS = "".join(f"the {a} saw a {b} .\n" for a, b in PAIRS)
COMMANDS = {
    "ablate": (
        "importance",
        "ablate",
        "bundled:induction",
        "-n",
        "48",
        "--max-tokens",
        "64",
        "--null",
        "none",
    ),
    "influence": (
        "texts",
        "influence",
        "bundled:induction",
        "--file",
        "{texts}",
        "--heads",
        "L0H1",
        "--random",
        "2",
        "--max-tokens",
        "64",
    ),
    "faithfulness": (
        "evaluate",
        "faithfulness",
        "bundled:induction",
        "--file",
        "{few}",
        "-m",
        "rollout",
    ),
}


def ended(args: list[str], kept: Path, patience: float) -> subprocess.Popen:
    """The command in another process, killed so many seconds after it kept something more."""
    code = "import sys; from interp.cli.main import main; main(sys.argv[1:])"
    before = len(rows(kept)) if kept.is_dir() else 0
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while process.poll() is None:
        if kept.is_dir() and len(unfinished(kept)) > before:
            time.sleep(patience)
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_killed_command_ends_as_if_it_was_not(run, tmp_path, command) -> None:
    random.seed(7)
    (tmp_path / "texts.txt").write_text(TEXTS)
    (tmp_path / "few.txt").write_text("".join(TEXTS.splitlines(keepends=True)[:12]))
    given = {"texts": tmp_path / "texts.txt", "few": tmp_path / "few.txt"}
    asked = [a.format(**given) for a in COMMANDS[command]]

    def at(name: str) -> tuple[list[str], Path]:
        out = tmp_path / name
        if command == "influence":
            return [*asked, "-q", "-o", str(out / "scores.jsonl")], out
        return [*asked, "-q", "-o", str(out)], out / "kept"

    args, kept = at("killed")
    kills = 0
    for _ in range(2):
        process = ended(args, kept, random.random() * 0.3)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills, "it ended before it could be killed"
    again = run(*args).stdout
    whole_args, whole_kept = at("whole")
    whole = run(*whole_args).stdout
    assert whole
    assert again == whole
    assert not unfinished(kept)
    if command == "influence":
        assert (kept / "scores.jsonl").read_bytes() == (whole_kept / "scores.jsonl").read_bytes()
    else:
        assert rows(kept) == rows(whole_kept), "equal to the last bit"
