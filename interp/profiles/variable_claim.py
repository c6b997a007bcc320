"""Claim that a subspace holds a variable, from a file of `interp circuit variables`, judged.

variables.json                      the only place of the file at which a variable was found
L0H3=variables.json                 a place of the file; or VARIABLE:PLACE, VARIABLE:PLACE@POSITION
L0H3=variables.json=task:own.jsonl  on the interchanges of a file that took no part in the search

The part of the source run that lies in the subspace is put into the base run of fresh pairs. A pair
counts 1 if the model then gives the answer of the exchanged variable, and does so as well if only
that part of the change is made that varies over the prompts, and 0 otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.variables.interchanges import (
    INDUCTION,
    OWNER,
    Interchange,
    PlacedInterchange,
    base_hashes,
    drawn_interchanges,
    place_interchanges,
    read_interchanges,
)
from interp.circuits.variables.places import (
    HeldPlace,
    InterchangeRuns,
    Subspace,
    placed_at,
    places_of,
)
from interp.circuits.variables.rows import LEAST_TEMPLATES
from interp.circuits.variables.search import random_like, varying, whole
from interp.core.columns import with_noun
from interp.core.errors import OptionError, UnknownName
from interp.core.intervals import fraction_interval
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.profiles.judgement import PROBABILITIES
from interp.profiles.task_claim import PAIR, require_gap, some_fresh
from interp.profiles.task_verdict import N_SETS, RANDOM, JudgedShares, median_set, verdict_rows

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.core.protocols import Progress
    from interp.model.model import Model
    from interp.profiles.ledger import QuestionLedger

FOLLOWED, SHUFFLED = "share followed", "control: the answer of another pair instead"
VARYING = "with only the part of the change that varies over the prompts"
WHOLE = "with the whole of the place (upper bound)"
_SHOWN = 128  # pairs whose activations show in which directions a place varies
_ROUNDING = 1e-3  # by which products of directions may differ from those of orthonormal ones


@dataclass(frozen=True, eq=False)
class VariableClaim:
    """Claim that a subspace of a place holds a variable.

    Args:
        asked: the claim as it was given, with the hash of the directions.
        searched: the search that states it.
        row: its row in the search.
        directions: columns that span the subspace.
        task: "induction", or the file of the pairs.
        pairs: those of the file; None where they are drawn.
    """

    asked: str
    searched: ResultRows
    row: int
    directions: Float[np.ndarray, "width k"]
    task: str
    pairs: Sequence[Interchange] | None

    def column(self, name: str) -> str:
        """Return an entry of its row: variable, place or position."""
        return str(self.searched.columns[name][self.row])


def variable_claim(given: Any, head: str | None = None) -> VariableClaim | None:
    """Read a claim about a variable; None for a hypothesis of another form."""
    named, called, task, found = "", "the search", "", given
    if isinstance(given, str):
        who, _, task = given.strip().partition("=task:")
        named, _, called = who.rpartition("=")
        if not _is_search(Path(called)):
            return None
        found = ResultRows.load(called)
    elif not isinstance(given, ResultRows):
        return None
    found.require_kind("Variables", "interp circuit variables")
    task = task or str(found.provenance["options"].get("pairs", ""))
    if "base_prompts" not in found.facts or not task:
        raise OptionError(
            f"{called} does not say how to make fresh pairs; give {called}=task:FILE.jsonl with"
            " interchanges that were not searched, or search again if an older interp wrote it"
        )
    label, at = _chosen(found, named or head or "", called)
    directions = np.asarray(found.directions, np.float32)[at][:, : int(found.k[at])]
    directions = directions[~np.isnan(directions).all(1)]
    asked = f"{label}={called} (sha256 {hashlib.sha256(directions.tobytes()).hexdigest()[:8]})"
    pairs = None if task in (INDUCTION, OWNER) else read_interchanges(Path(task))
    return VariableClaim(asked, found, at, directions, task, pairs)


def _is_search(path: Path) -> bool:
    """Return whether a JSON, TOML or Parquet file states that it holds variables."""
    known = path.suffix in (".json", ".toml", ".parquet") and path.is_file()
    return known and b'"type": "Variables"' in path.read_bytes().replace(b"\\", b"")


def _chosen(found: ResultRows, named: str, called: str) -> tuple[str, int]:
    """Return the label and the number of the row of a search that a claim is about."""
    columns = zip(found.variable, found.place, found.position, strict=True)
    labels = [f"{name}:{place}" + f"@{x}" * (x != "all") for name, place, x in columns]
    known = [("", x, x.partition("@")[0], y) for x, y in zip(labels, found.place, strict=True)]
    rows = [at for at, names in enumerate(known) if named in names]
    if not rows:
        raise UnknownName(f"place of {called}", named, labels)
    rows = [at for at in rows if found.finding[at] == "found"] or rows
    if len(rows) > 1:
        some = ", ".join(labels[at] for at in rows[:8])
        raise OptionError(f"{called} has several places; give one of them (PLACE={called}): {some}")
    return labels[rows[0]], rows[0]


def _pairs(model: Model, claim: VariableClaim, n: int, seed: int) -> list[PlacedInterchange]:
    """Return the pairs of a claim whose answer the variable changes; n are drawn if none given."""
    drawn = claim.pairs is None
    pairs = drawn_interchanges(model, claim.task, n, seed) if drawn else claim.pairs or []
    rows = place_interchanges(model, pairs)
    return [row for row in rows if row.changes and row.variable == claim.column("variable")]


def judge_variable(
    model: Model,
    claim: VariableClaim,
    books: QuestionLedger,
    *,
    n: int,
    least: int,
    seed: int,
    progress: Progress | None = None,
) -> ResultRows:
    """Judge a claim about a variable on up to n fresh pairs, at least so many.

    A pair is fresh if its base prompt is none of the search, and of no question.
    """
    graph, searched = ResidualGraph.of(model), claim.searched
    if searched.provenance["content_hash"] != model.content_hash:
        raise OptionError(
            f"{claim.asked} is of {searched.provenance['model_id']}, and {model.name} has other"
            " weights; search this model"
        )
    shown = _pairs(model, claim, _SHOWN, seed)[:_SHOWN]
    position, shortest = claim.column("position"), min((len(x.base) for x in shown), default=0)
    at = None if position == "all" else [int(position)]
    [place] = placed_at(graph, [claim.column("place")], "rotation", at, shortest)
    subspace = _subspace(claim, place)
    controls, others = _controls(graph, place, subspace, seed)
    with books.turn() as turn:
        drawn = int(np.random.default_rng([seed, turn.number, 67]).integers(2**31))
        pairs = _pairs(model, claim, n, drawn)
        keys = [f"{PAIR}{base}" for base in base_hashes(pairs)]
        known = {*turn.used, *(f"{PAIR}{base}" for base in searched.facts["base_prompts"])}
        fresh = some_fresh(keys, known, claim.task, n, least, drawn)
        left = None if claim.pairs is None else len({*keys} - known) - len(fresh)
        pairs, keys = [pairs[x] for x in fresh], [keys[x] for x in fresh]
        runs = InterchangeRuns(graph, pairs)
        right = runs.plain == [row.base_answer for row in pairs]
        require_gap(int(right.sum()), len(pairs), claim.task, model, least)
        inside = replace(subspace, inside=varying(InterchangeRuns(graph, shown), place))
        given: list[Any] = []
        every = [(place, subspace), (place, inside), (place, whole(place)), *controls]
        for where, space in every:
            given.append(runs.answers(where, space)[right])
            if progress is not None:
                progress("interchanges", len(given), len(every))
        answers = np.array([row.answer for row in pairs])[right]
        own, varied, full, *random = (np.array(given) == answers).astype(float)
        shuffled = ((given[0][:, None] == answers).sum(1) - own) / (len(own) - 1)
        shares = {FOLLOWED: own * varied, RANDOM: median_set(np.array(random)), SHUFFLED: shuffled}
        shares |= {"with the subspace": own, VARYING: varied, WHOLE: full}
        measured = JudgedShares(FOLLOWED, shares, len(random), (RANDOM, SHUFFLED))
        facts = measured.tested.settled(turn, claim.asked, keys)
    size = with_noun(subspace.n_directions, "dimension")
    scores = [float(x.mean()) for x in random]
    facts |= {
        "probabilities": [*PROBABILITIES],
        "task": claim.task,
        "subject": f"the subspace {claim.asked.partition('=')[0]} ({size})",
        "variable": claim.column("variable"),
        "control": f"{others} ({min(scores):.2f} to {max(scores):.2f})",
        "random_scores": scores,
        "without_gap": len(pairs) - len(own),
        "fresh_left": left,
    }
    templates = {row.template for row, counts in zip(pairs, right, strict=True) if counts}
    by_wording = len(templates) >= LEAST_TEMPLATES
    facts["wordings"] = len(templates) if by_wording else None
    n_units = len(templates) if by_wording else len(own)
    quantiles = np.array([_wilson(float(x.mean()), n_units) for x in measured.values])
    ends = quantiles[:, [PROBABILITIES.index(p) for p in (0.025, 0.975)]]
    prompts = Prompts(tuple(row.base for row in pairs), "interchanges")
    about = {"prompts_hash": prompts.hash, "options": {"n_documents": n, "seed": seed}}
    return verdict_rows(model, measured, ends, facts, about, arrays={"quantiles": quantiles})


def _wilson(mean: float, n: int) -> list[float]:
    """Return the ends of Wilson's intervals of a share, at `PROBABILITIES`."""
    return [fraction_interval(mean, n, abs(1 - 2 * p))[p > 0.5] for p in PROBABILITIES]


def _subspace(claim: VariableClaim, place: HeldPlace) -> Subspace:
    """Return the subspace of a claim, and refuse directions that span none."""
    space, k = torch.from_numpy(claim.directions), int(claim.searched.k[claim.row])
    shaped = space.shape == (place.width, max(1, k))
    if not shaped or not torch.allclose(space.T @ space, torch.eye(k), atol=_ROUNDING):
        raise OptionError(
            f"{claim.asked} has no orthonormal directions of {place.width} numbers: nothing was"
            " fitted there, or several heads or features were; name another place, or search by"
            " rotation"
        )
    return Subspace.of([space])


def _controls(
    graph: ResidualGraph, place: HeldPlace, subspace: Subspace, seed: int
) -> tuple[list[tuple[HeldPlace, Subspace]], str]:
    """Return random subspaces of the place, and of a whole head the other heads of its layer."""
    if subspace.n_directions < place.width:
        draws = np.random.default_rng([seed, 71]).integers(2**31, size=N_SETS).tolist()
        return [(place, random_like(subspace, x)) for x in draws], "random subspaces of this size"
    layer, _, head = place.name.partition("H")
    every = [replace(x, position=place.position) for x in places_of(graph, None) if head]
    others = [x for x in every if x.name.startswith(f"{layer}H") and x.name != place.name]
    if not others:
        raise OptionError(
            f"the directions span the whole of {place.name}, so that there is no other subspace to"
            " compare them with; name a head, or search with smaller ranks"
        )
    return [(x, whole(x)) for x in others], "other heads of the layer, whole"
