"""Commands that are killed at random moments, and run again until they end: is the result equal?

    python -m benchmarks.kills [--kills 20] [--seed 0]

Each command first runs undisturbed. Then it is sent SIGKILL or SIGINT at a random moment of about
that time, again and again, and at last runs to its end. Text output and files must equal those of
the undisturbed run, apart from times; no file may be half-written, and the folder holds no others.

Writes benchmarks/kills.md and .json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
COMMANDS = {
    "score a folder of models": "score {models}/* -m induction,previous_token -q -o {out}",
    "importance ablate": "importance ablate bundled:induction -n 48 --max-tokens 64 -q -o {out}",
    "circuit": "circuit bundled:induction --task induction -n 12 -q -o {out}",
    "record": "record bundled:one-layer --file {texts} --site z -o {out}",
    "texts influence": "texts influence bundled:induction --file {texts} --heads L0H1 --random 2 "
    "--max-tokens 64 -q -o {out}/scores.jsonl",
    "atlas": "atlas bundled:one-layer -q --overwrite -o {out}/atlas.html",
}
CODE = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from interp.cli.main import main; main(sys.argv[1:])"
)
SENT = (signal.SIGKILL, signal.SIGINT)
TIMES = re.compile(
    r'"(?:seconds|date|time|created|written|finished|started|wall_s)[a-z_]*": ?[^,}\n]+'
    r"|\d{4}-\d\d-\d\d[T ]?[\d:.+Z]*|\d+(?:\.\d+)? (?:s|ms|min)\b"
)


def words(line: str, given: dict[str, str]) -> list[str]:
    """Return the words of a command, with files in place and patterns expanded."""
    found: list[str] = []
    for word in (w.format(**given) for w in line.split()):
        path = Path(word)
        found += sorted(map(str, path.parent.glob("*"))) if path.name == "*" else [word]
    return found


def run(asked: list[str], patience: float | None, sent: signal.Signals) -> tuple[int, str, str]:
    """Run a command, and send it a signal after so many seconds; None: never."""
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'kernels'}",
        "OMP_NUM_THREADS": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-c", CODE, *asked],
        text=True,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            told = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.send_signal(sent)
            told = process.communicate()
    return process.returncode, *told


def contents(folder: Path, name: str) -> dict[str, Any]:
    """Return what the files of a folder say, without times and without the folder's own name.

    The folder `kept` of finished steps is left out: short steps are not stored, so its contents
    depend on the time that each took, in undisturbed runs as well.
    """
    found: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        inside = path.relative_to(folder).as_posix()
        if inside.startswith("kept/"):
            continue
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            found[inside] = repr(pq.read_table(path).to_pylist())  # as text, NaN equals NaN
        elif path.suffix in (".sqlite", ".lock"):
            found[inside] = "present"
        else:
            raw = path.read_bytes()
            try:
                found[inside] = TIMES.sub("", raw.decode("utf-8")).replace(name, "OUT")
            except UnicodeDecodeError:
                found[inside] = raw
    return found


def swept(name: str, given: dict[str, str], kills: int, rng: random.Random) -> dict[str, Any]:
    """Run one command undisturbed and killed, and compare."""
    folder = Path(given["folder"]) / name.replace(" ", "-")
    whole, broken = folder / "whole", folder / "broken"
    whole.mkdir(parents=True)
    broken.mkdir()
    began = time.monotonic()
    code, told, said = run(words(COMMANDS[name], given | {"out": str(whole)}), None, SENT[0])
    assert code == 0, said
    length = time.monotonic() - began
    asked = words(COMMANDS[name], given | {"out": str(broken)})
    codes: Counter[str] = Counter()
    tracebacks = 0
    while sum(codes.values()) < kills:
        sent, began = SENT[sum(codes.values()) % 2], time.monotonic()
        code, _, error = run(asked, length * rng.uniform(0.2, 0.9), sent)
        if code == 0:  # it was faster than the first: nothing was interrupted, so from the start
            length = min(length, time.monotonic() - began)
            shutil.rmtree(broken)
            broken.mkdir()
            continue
        codes[f"{sent.name}: exit {code}"] += 1
        tracebacks += "Traceback" in error
        print(name, sent.name, code, error.strip().splitlines()[-1:], flush=True)
    code, last, error = run(asked, None, SENT[0])
    one, other = contents(whole, str(whole)), contents(broken, str(broken))
    differs = [x for x in {*one, *other} if one.get(x) != other.get(x)]
    same = TIMES.sub("", told).replace(str(whole), "OUT") == TIMES.sub("", last).replace(
        str(broken), "OUT"
    )
    row = {
        "command": name,
        "seconds": round(length, 1),
        "ended": dict(codes),
        "exit": code,
        "tracebacks": tracebacks,
        "output": same,
        "files": len(one),
        "differs": sorted(differs),
        "error": error.strip()[-300:] if code else "",
    }
    print(row, flush=True)
    return row


def page(rows: list[dict[str, Any]], seed: int) -> str:
    """Return the table as Markdown."""
    kills = sum(n for row in rows for n in row["ended"].values())
    good = [r for r in rows if r["output"] and not r["differs"] and not r["exit"]]
    lines = [
        "# Commands killed at random moments",
        "",
        f"{kills} kills (SIGKILL and SIGINT in turn) at random moments of {len(rows)} commands "
        "that resume. After the kills each ran to its end; text and files are compared with those "
        "of an undisturbed run, apart from times and from the stored steps in `kept`, of which "
        "short ones are not stored. "
        f"{len(good)} of {len(rows)} are equal. "
        f"Made by `python -m benchmarks.kills --seed {seed}`.",
        "",
        "| command | how the killed runs ended | tracebacks | text equal | files | differing |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        ended = ", ".join(f"{what}, {n} times" for what, n in r["ended"].items())
        lines.append(
            f"| {r['command']} | {ended} | {r['tracebacks']} | {'yes' if r['output'] else 'no'} "
            f"| {r['files']} | {', '.join(r['differs']) or 'none'} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Sweep, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="over all commands")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(COMMANDS), help="sweep this one, keep the others")
    asked = parser.parse_args()
    rng, path = random.Random(asked.seed), HERE / "kills.json"
    kept = {r["command"]: r for r in json.loads(path.read_text())} if asked.only else {}
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        from interp import bundled

        models.mkdir()
        for name in ("induction", "one-layer"):
            for copy in (1, 2):
                (models / f"{name}-{copy}").symlink_to(Path(bundled.path(name)).resolve())
        texts = Path(folder) / "texts.txt"
        texts.write_text("".join(f"the dog saw a cat {i % 7} .\n" for i in range(200)))
        given = {"folder": folder, "models": str(models), "texts": str(texts)}
        for at, name in enumerate(COMMANDS):
            if asked.only not in (None, name):
                continue
            share = (at + 1) * asked.kills // len(COMMANDS) - at * asked.kills // len(COMMANDS)
            kept[name] = swept(name, given, share, rng)
            rows = [kept[x] for x in COMMANDS if x in kept]
            path.write_text(json.dumps(rows, indent=1) + "\n")
            path.with_suffix(".md").write_text(page(rows, asked.seed))


if __name__ == "__main__":
    main()
