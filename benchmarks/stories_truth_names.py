"""Words of the package that name a relation of the stories, and what it says of every head.

The table of names is stories_truth_names.toml.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import interp
from benchmarks.judge_loop import LETTERS, REFUSED
from benchmarks.stories_truth_counts import PLACES
from interp.core.documents import parse_toml
from interp.core.errors import OptionError
from interp.core.table import HeadTable
from interp.heads.roles.decide import roles
from interp.heads.roles.declaration import Need, Role
from interp.heads.roles.declared import ROLES
from training.stories.world import NAMES as PEOPLE

Question = tuple[str, str]  # relation, and place of the query


class RelationName(NamedTuple):
    """Exact names of one relation at some places of the query, as the table explains them."""

    relation: str
    places: tuple[str, ...]
    rules: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    judged: str = ""
    limited: str = ""
    line_keys: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


_TABLE = parse_toml(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
EXACT = [RelationName(**each) for each in _TABLE["exact"]]
LOOSE: dict[str, list[str]] = _TABLE["loose"]
KINDS = {"person": {name for name, _ in PEOPLE}, "mark": {*'"('}}
SCORES = (
    *("induction", "duplicate_token", "duplicate_token_text", "coreference"),
    *("matching_bracket", "dependency_relation", "retrieval"),
)
COREFERENCE = Role(
    "coreference", "coreference", "Attends to its entity.", (Need("coreference", 0.1),)
)
"""Decided by the rule of the package's roles, which has none for this score."""
RULES = [*dict.fromkeys(name.judged for name in EXACT if name.judged)]
AT_QUERIES = [name.limited for name in EXACT if name.limited]
JUDGED: dict[str, Any] = {"n_documents": 32, "n_queries": 8, "max_length": 128}
AT_MOST: dict[str, Any] = JUDGED | {"n_documents": 48, "max_length": 256}
"""Size of a question, and of one that is limited to few queries of a text."""


def n_texts(size: Mapping[str, Any]) -> int:
    """Return the texts of a question: those that judge, and half as many that fit."""
    return size["n_documents"] * 3 // 2


def described(model: interp.Model, texts: Sequence[str]) -> interp.profiles.Profile:
    """Return the profile of a model on texts."""
    size: dict[str, Any] = {"n_documents": len(texts), "max_length": 256}
    return interp.profile(model, texts, effects=False, behaviours=False, **size)


def lines_said(model: interp.Model, texts: Sequence[str]) -> dict[str, list[list[Any]]]:
    """Return of every head its lines at particular queries: rule, kind, share, by position."""
    return {
        said["name"]: [
            [x["rule"], x["queries"], x["share"]["value"], x["position"]] for x in said["lines"]
        ]
        for said in described(model, texts).descriptions
    }


def entries_said(model: interp.Model, texts: Sequence[str]) -> dict[str, list[list[Any]]]:
    """Return of every head the entries that it attends to: rule, kind of query, share, tokens."""
    found = described(model, texts)
    return {
        said["name"]: [
            [x["rule"], x["queries"], x["share"]["value"], [*x["members"][:4]]]
            for x in said["entries"]
            if not x["avoided"]
        ]
        for said in found.descriptions
    }


def roles_said(model: interp.Model) -> dict[str, Any]:
    """Return the roles of every head, yielded ones too, and the scores that the model lacks."""
    tables = {name: interp.score(model, name) for name in SCORES}
    scored = HeadTable.concat([table for table in tables.values() if len(table)])
    decided = roles(scored, declared=(*ROLES, COREFERENCE)).assigned
    return {
        "heads": {f"L{x.layer}H{x.head}": [*x.roles, *x.yielded] for x in decided},
        "unscored": [name for name, table in tables.items() if not len(table)],
    }


def verdicts_said(
    model: interp.Model,
    heads: Sequence[str],
    texts: Sequence[str],
    rules: Sequence[str],
    size: Mapping[str, Any],
) -> dict[str, dict[str, tuple[str, float | None]]]:
    """Return letter and share of the verdict on every rule and head, asked in a random order."""
    said: dict[str, dict[str, tuple[str, float | None]]] = {rule: {} for rule in rules}
    asked = [(rule, head) for rule in rules for head in heads]
    order = np.random.default_rng(0).permutation(len(asked)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        for at, (rule, head) in enumerate(asked[number] for number in order):
            own = texts[at * n_texts(size) : (at + 1) * n_texts(size)]
            try:
                found = interp.judge(model, f"{head}={rule}", own, questions=folder, **size)
            except OptionError:
                said[rule][head] = REFUSED, None
            else:
                said[rule][head] = LETTERS[found.facts["verdict"]], float(found.score[0])
    return said


def named_exactly(entry: Sequence[Any]) -> set[Question]:
    """Return the questions that an entry of a list names exactly."""
    rule, queries, *_ = entry
    return {
        (name.relation, place)
        for name in EXACT
        if (rule in name.rules and not queries)
        or (rule in (*name.rules, *name.keys) and queries in name.queries)
        for place in name.places
    }


def named_by_line(line: Sequence[Any]) -> set[Question]:
    """Return the questions that a line at particular queries names exactly."""
    rule, queries, *_ = line
    return {
        (name.relation, place)
        for name in EXACT
        if rule in (*name.rules, *name.keys, *name.line_keys)
        and queries in (*name.queries, *name.lines)
        for place in name.places
    }


def named_loosely(entry: Sequence[Any]) -> set[Question]:
    """Return the questions whose targets the keys of an entry include, the exact ones too."""
    rule, _, _, members = entry
    first = members[0].strip() if members and rule == "favoured" else ""
    loose = {name for name, rules in LOOSE.items() if rule in rules}
    for kind, relations in _TABLE["groups"].items():
        loose |= {*relations} if first in KINDS[kind] else set()
    return {(name, place) for name in loose for place in PLACES} | named_exactly(entry)
