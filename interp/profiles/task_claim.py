"""Claims about a task: heads that are said to do it, or a circuit, and pairs to judge them on.

L5H4+L6H11=task:ioi         heads, and a task of `interp circuit`
L5H4=task:mine.jsonl        a task of pairs from a file
circuit.json                a circuit as `interp circuit` writes it, on its own task
circuit.json=task:ioi       a circuit whose file names no task that can be made again
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.contrast import hashes
from interp.circuits.exports import json_of, toml_of
from interp.circuits.mib import is_mib
from interp.circuits.result import Circuit
from interp.circuits.tasks.named import TASKS, is_file, known_task, make_contrast
from interp.core.columns import with_noun
from interp.core.errors import OptionError, PromptError, StoreError
from interp.model.head_arguments import parse_heads

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.circuits.nodes import Edge
    from interp.core.head import Head
    from interp.model.model import Model

_ON_TASK = re.compile(r"(.+?)\s*=\s*task:(.*)", re.DOTALL)
PAIR = "pair:"
"""Beginning of the keys of pairs among the documents of a ledger."""
_DRAWS = (1, 2, 4, 8)  # times the pairs that are needed, until enough of them are fresh


@dataclass(frozen=True)
class TaskClaim:
    """Claim that heads do a task, or that a circuit does.

    Args:
        asked: the claim as it was given, with the hash of a circuit.
        task: name of the task, or its file.
        heads: the heads; none if it is about a circuit.
        circuit: the circuit.
        nodes: nodes of the circuit.
        edges: its edges; None if all edges between its nodes belong to it.
    """

    asked: str
    task: str
    heads: tuple[Head, ...] = ()
    circuit: Circuit | None = None
    nodes: tuple[str, ...] = ()
    edges: tuple[Edge, ...] | None = None

    @property
    def subject(self) -> str:
        """The heads or the circuit, in words."""
        if self.circuit is None:
            return "+".join(map(str, self.heads))
        edges = "all edges between them"
        if self.edges is not None:
            edges = with_noun(len(self.edges), "edge")
        return f"the circuit of {with_noun(len(self.nodes), 'node')} and {edges}"


def task_claim(given: Any, head: str | None = None) -> TaskClaim | None:
    """Read a claim about a task; None for a hypothesis of another form."""
    who, task = given, ""
    if isinstance(given, str):
        if match := _ON_TASK.fullmatch(given.strip()):
            who, task = match[1], match[2].strip()
        elif head is not None or not _holds_circuit(Path(given.strip())):
            return None
    elif not isinstance(given, Circuit):
        return None
    if head is not None:
        raise OptionError(f"a claim about a task names its heads itself; leave out head={head!r}")
    if isinstance(who, Circuit):
        return _of_circuit(who, "circuit", task)
    if Path(who).suffix in (".json", ".toml"):
        return _of_circuit(Circuit.load(who), who, task)
    heads = parse_heads(who.split("+"))
    return TaskClaim(f"{'+'.join(map(str, heads))}=task:{task}", known_task(task), heads)


def _holds_circuit(path: Path) -> bool:
    """Return whether a file holds a circuit, whether or not it can be read as one."""
    if path.suffix not in (".json", ".toml") or not path.is_file():
        return False
    try:
        document = json_of(path) if path.suffix == ".json" else toml_of(path)
    except StoreError:  # said where it is read as a list
        return False
    return is_mib(document) or (isinstance(document, dict) and "format" in document)


def _of_circuit(circuit: Circuit, called: str, task: str) -> TaskClaim:
    """Return the claim that the set of a circuit does a task, by default that of its file."""
    if not task and circuit.task not in TASKS:
        said = f"the task {circuit.task!r}, whose pairs it does not hold"
        raise OptionError(
            f"{called} is a circuit for {said if circuit.task else 'a task that it does not name'};"
            f" give {called}=task:TASK with a task of `interp circuit --list`, or a file of pairs"
        )
    task = known_task(task or circuit.task)
    name = Path(task).stem if is_file(task) else task
    if circuit.model and circuit.task != name:
        raise OptionError(
            f"{called} is a circuit for {circuit.task}, not for {name}; give another circuit"
        )
    chosen = circuit.chosen
    nodes = chosen.nodes if chosen else circuit.roles.get("in the file's circuit", ())
    edges = chosen.edges if chosen and chosen.separated else None
    if chosen is None and "file_edges" in circuit.tables:
        edges = tuple((row["from"], row["to"]) for row in circuit.tables["file_edges"])
    if not nodes:
        raise OptionError(
            f"{called} has scores of nodes and no set of them, so that it does not say what the"
            " circuit is; mark one by `interp circuit`, or by `interp.circuits.smallest`"
        )
    digest = hashlib.sha256(repr((nodes, edges)).encode()).hexdigest()[:8]
    asked = f"{called}=task:{task} (sha256 {digest})"
    return TaskClaim(asked, task, (), circuit, tuple(nodes), edges)


def fresh_pairs(
    model: Model, claim: TaskClaim, used: Collection[str], n: int, least: int, seed: int
) -> tuple[ContrastTask, list[str], int | None]:
    """Draw up to n pairs that judged no question and chose no circuit, the same for one seed.

    Returns them, their keys in the ledger, and the number of further ones; None if the task can
    make others.
    """
    whole = is_file(claim.task)
    chose = () if claim.circuit is None else claim.circuit.made.get("pairs") or ()
    known = {*used, *(f"{PAIR}{pair}" for pair in chose)}
    best: tuple[ContrastTask, list[str]] | None = None
    for times in (1,) if whole else _DRAWS:
        try:
            pairs = make_contrast(model, claim.task, n=2**31 if whole else n * times, seed=seed)
        except PromptError:
            if best is None:
                raise
            break  # it cannot make so many
        keys = [f"{PAIR}{pair}" for pair in hashes(pairs)]
        best = pairs, keys
        if len({*keys} - known) >= n:
            break
    assert best is not None
    pairs, keys = best
    rows = some_fresh(keys, known, claim.task, n, least, seed)
    left = len({*keys} - known) - len(rows) if whole else None
    return pairs.some(rows), [keys[row] for row in rows], left


def some_fresh(
    keys: Sequence[str], known: Collection[str], task: str, n: int, least: int, seed: int
) -> list[int]:
    """Draw up to n pairs whose key is not known, one of each key; PromptError for too few."""
    fresh = {key: at for at, key in enumerate(keys) if key not in known}
    if len(fresh) < least:
        raise PromptError(
            f"{with_noun(len(fresh), 'fresh pair')} of {task} left of {len(keys)}: the others"
            f" judged an earlier question, chose what is judged, or are equal; at least {least} are"
            " needed: give a file with more pairs, or another task"
        )
    return np.random.default_rng([seed, 61]).permutation([*fresh.values()])[:n].tolist()


def require_gap(n_right: int, n: int, task: str, model: Model, least: int) -> None:
    """Raise OptionError unless the model does the task on enough pairs."""
    if n_right < least:
        raise OptionError(
            f"{model.name} does {task} on {n_right} of {n} fresh pairs; at least {least} are"
            " needed: give more pairs, or another task"
        )
