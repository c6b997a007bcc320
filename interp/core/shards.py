"""Shards of a sweep: which part of the tasks of a job array each job takes, and which are missing.

Every job writes a file `shards/SWEEP.I-of-N.json` into the results folder when it starts and again
when it ends; `SWEEP` is a hash of everything that the jobs have in common.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from interp.core import files
from interp.core.errors import OptionError, StoreError
from interp.core.json_document import json_document, stored_document

FOLDER = "shards"
PIECES = "pieces"  # folder of values on pieces of the prompts, until all are there
_NAME = re.compile(r"([0-9a-f]{12})\.(\d+)-of-(\d+)\.json")
T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """Part `index` of `number` parts of a list of tasks, counted from 1."""

    index: int
    number: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read `i/n`; raises OptionError."""
        match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        index, number = map(int, match.groups()) if match else (0, 0)
        if not 1 <= index <= number:
            raise OptionError(
                f"--shard {text}: give I/N with I from 1 to N, such as 1/4 for the first of four"
                " jobs; where a scheduler counts from 0, let it count from 1 (SLURM: --array=1-4)"
            )
        return cls(index, number)

    def of(self, tasks: Sequence[T]) -> Sequence[T]:
        """Return the tasks of this shard."""
        return tasks[self.index - 1 :: self.number]

    def __str__(self) -> str:
        return f"{self.index}/{self.number}"


def record_shard(
    folder: Path, shard: Shard, sweep: Mapping[str, Any], state: Mapping[str, Any]
) -> None:
    """Write the file of a shard; raises StoreError."""
    digest = hashlib.sha256(json.dumps(sweep, sort_keys=True).encode()).hexdigest()[:12]
    path = folder / FOLDER / f"{digest}.{shard.index}-of-{shard.number}.json"
    document = {"sweep": sweep, "shard": str(shard), **state}
    files.write_atomically(path, json_document(document, indent=1))


def shard_problems(folder: Path) -> list[tuple[str, str, str]]:
    """Return (file, kind, text) of every shard that is missing, unfinished or without its results.

    A sweep is known from any of its shards; each missing one is named.
    """
    sweeps: dict[tuple[str, int], dict[int, Path]] = {}
    for path in files.listed(folder / FOLDER):
        if match := _NAME.fullmatch(path.name):
            digest, index, number = match.groups()
            sweeps.setdefault((digest, int(number)), {})[int(index)] = path
    problems = []
    for (digest, number), there in sweeps.items():
        for index in range(1, number + 1):
            name = f"{FOLDER}/{digest}.{index}-of-{number}.json"
            again = f"run the job with --shard {index}/{number}"
            if index not in there:
                problems.append((name, "missing", f"shard {index} of {number} never ran; {again}"))
                continue
            try:
                document = stored_document(files.read_bytes(there[index]))
                state, results = document["state"], list(document.get("results", ()))
                failed = list(document.get("failed", ()))
            except (StoreError, ValueError, KeyError, TypeError) as error:
                problems.append((name, "damaged", f"{error}; {again}"))
                continue
            if state != "done":
                text = f"shard {index} of {number} began and did not end; {again}"
                problems.append((name, "unfinished", text))
            gone = [file for file in results if not (folder / file).exists()]
            if gone:
                text = f"{len(gone)} results of shard {index} of {number} are gone; {again}"
                problems.append((name, "missing", text))
            if failed:
                text = f"models that failed in shard {index} of {number}: {', '.join(failed)}"
                problems.append((name, "failed", text))
    return problems
