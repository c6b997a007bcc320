"""Lists that `interp profile` chooses on some stories, judged on the other stories."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import interp
from interp.core.documents import parse_json
from interp.core.errors import OptionError
from interp.profiles.verdict import HOLDS, IN_PART, NOT, OPEN

LETTERS = {HOLDS: "H", IN_PART: "P", NOT: "N", OPEN: "O"}
REFUSED = "R"
PROPOSED, N, QUERIES, TOKENS = 400, 48, 16, 64
HEADS = 32  # in random order


def entries_of(description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries that a list of the profile prints, as a hypothesis.

    Of a group of tokens those that are shown. What a head avoids is left out: a hypothesis says
    where it attends.
    """
    entries = []
    for entry in description["entries"]:
        if entry["avoided"]:
            continue
        keys = {"tokens": [*entry["members"]]} if entry["members"] else {"keys": entry["rule"]}
        entries.append(keys | ({"queries": entry["queries"]} if entry["queries"] else {}))
    return entries


def exchanged(names: list[str], seed: int) -> dict[str, str]:
    """Return for each head another one, at random."""
    places = np.random.default_rng(seed).permutation(len(names)).tolist()
    order = [names[at] for at in places]
    return dict(zip(order, [*order[1:], order[0]], strict=True))


def loop_row(folder: Path, stories: Path, row: dict[str, Any], store: Callable[[], None]) -> None:
    """Propose on some stories and judge on the others, head by head; a finished head is kept.

    All lists are chosen before any of them is judged, so that no verdict leads to a question.
    """
    start = time.process_time()
    model, texts = interp.load(folder), parse_json(stories.read_bytes())
    found = interp.profile(
        model,
        texts[:PROPOSED],
        n_documents=PROPOSED,
        max_length=128,
        effects=False,
        behaviours=False,
    )
    lists = {said["name"]: entries_of(said) for said in found.descriptions}
    known = [name for name, entries in lists.items() if entries]
    other = exchanged(known, 0)
    row |= {
        "model": folder.name,
        "stories": len(texts),
        "proposed": PROPOSED,
        "heads": len(lists),
        "without": len(lists) - len(known),
        "documents": N,
        "planned": HEADS,
    }
    rows = row.setdefault("rows", {})
    for at, name in enumerate([*other][:HEADS]):
        if name in rows:
            continue
        verdict: list[Any] = []
        for source in (name, other[name]):
            with tempfile.TemporaryDirectory() as ledger:
                verdict += _verdict(model, name, lists[source], texts[PROPOSED:], at, ledger)
        rows[name] = verdict
        row["seconds"] = round(row.get("seconds", 0) + time.process_time() - start)
        start = time.process_time()
        store()
        print(name, *verdict, row["seconds"], flush=True)


def _verdict(
    model: interp.Model, head: str, entries: list[Any], texts: list[str], seed: int, ledger: str
) -> tuple[str, float | None]:
    size: dict[str, Any] = {"n_documents": N, "n_queries": QUERIES, "max_length": TOKENS}
    try:
        found = interp.judge(model, entries, texts, head=head, seed=seed, questions=ledger, **size)
    except OptionError as error:
        print(head, error, flush=True)
        return REFUSED, None
    return LETTERS[found.facts["verdict"]], round(float(found.score[0]), 3)
