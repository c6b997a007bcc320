"""Agreement of names with the known truth, and the page, whose text is stories_truth.md.j2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.stories_truth_counts import PLACES, QUESTIONS
from benchmarks.stories_truth_names import (
    AT_MOST,
    AT_QUERIES,
    EXACT,
    JUDGED,
    LOOSE,
    RULES,
    SCORES,
    Question,
    named_by_line,
    named_exactly,
    named_loosely,
)
from interp.core.intervals import share_interval

Cell = tuple[str, str, str]  # head, relation, place of the query
LISTS, LOOSELY, BY_LINE, BY_ROLE, HOLDS, IN_PART, HOLDS_THERE, PART_THERE, ANY = SOURCES = (
    "list of `interp profile`, exact",
    "list of `interp profile`, loose",
    "lines of `interp profile` at particular queries, exact",
    "role by `interp score`",
    "`interp judge`: holds",
    "`interp judge`: holds, or in part",
    "`interp judge` at its queries: holds",
    "`interp judge` at its queries: holds, or in part",
    "any of these, but loose",
)


ANY_NAME = ("names", "other_names", "first_names")
"""Keys that say that a head attends to names, and not to which of them."""


def true_cells(kept: Mapping[str, Any]) -> set[Cell]:
    """Return head, relation and place of all that was chosen and confirmed."""
    return {(x["head"], x["relation"], x["place"]) for x in kept["truth"]["rows"] if x["true"]}


def said_cells(kept: Mapping[str, Any]) -> dict[str, set[Cell]]:
    """Return what each source of names says of the heads."""
    said: dict[str, set[Cell]] = {source: set() for source in SOURCES}
    judged = kept["verdicts"] | kept["limited"]
    for head in kept["truth"]["heads"]:
        for source, named in ((LISTS, named_exactly), (LOOSELY, named_loosely)):
            said[source] |= {(head, *cell) for x in kept["entries"][head] for cell in named(x)}
        said[BY_LINE] |= {(head, *q) for x in kept["lines"][head] for q in named_by_line(x)}
        for name in EXACT:
            cells = {(head, name.relation, place) for place in name.places}
            said[BY_ROLE] |= cells if {*kept["roles"]["heads"][head]} & {*name.roles} else set()
            for form, holds, part in (
                (name.judged, HOLDS, IN_PART),
                (name.limited, HOLDS_THERE, PART_THERE),
            ):
                letter = judged[form][head][0] if form else ""
                said[holds] |= cells if letter == "H" else set()
                said[part] |= cells if letter and letter in "HP" else set()
    said[ANY] = said[LISTS] | said[BY_LINE] | said[BY_ROLE] | said[IN_PART] | said[PART_THERE]
    return said


def nameable(source: str) -> set[Question]:
    """Return the questions for which a source has a name."""
    if source == LOOSELY:
        return {(relation, place) for relation in LOOSE for place in PLACES}
    fields = {LISTS: ["rules", "keys"], BY_LINE: ["queries", "lines"], BY_ROLE: ["roles"]}
    fields[ANY] = ["rules", "keys", "lines", "roles"]
    fields[ANY] += fields.setdefault(PART_THERE, fields.setdefault(HOLDS_THERE, ["limited"]))
    named = [
        name for name in EXACT if any(getattr(name, x) for x in fields.get(source, ["judged"]))
    ]
    return {(name.relation, place) for name in named for place in name.places}


def pairs_of(cells: Iterable[Cell]) -> set[tuple[str, str]]:
    """Return head and relation of cells, whatever the place of the query."""
    return {(head, relation) for head, relation, _ in cells}


def agreement_rows(kept: Mapping[str, Any]) -> list[tuple[str, int, int, int, int, float]]:
    """Return source, pairs said, right ones, true pairs that it could name, all, and chance.

    By chance is the precision that is expected if each name is given to a random head.
    """
    true, rows = true_cells(kept), []
    heads_of = Counter(relation for _, relation in pairs_of(true))
    for source, said in said_cells(kept).items():
        could = {cell for cell in true if cell[1:] in nameable(source)}
        counts = map(len, map(pairs_of, (said, said & true, could, true)))
        hits = [heads_of[relation] for _, relation in pairs_of(said)]
        chance = sum(hits) / max(1, len(hits) * len(kept["truth"]["heads"]))
        rows.append((source, *counts, chance))
    return rows


def that_tell_which(kept: Mapping[str, Any]) -> tuple[int, int]:
    """Return right pairs and all pairs that lines say, without those on names of any kind."""
    lines = {
        head: [x for x in every if x[0] not in ANY_NAME] for head, every in kept["lines"].items()
    }
    rows = {source: counts for source, *counts in agreement_rows({**kept, "lines": lines})}
    said, right, *_ = rows[BY_LINE]
    return int(right), int(said)


def pair_rows(kept: Mapping[str, Any], right: bool) -> Iterator[dict[str, Any]]:
    """Yield every true pair, or every pair that is named exactly and not true.

    With the sources that name it, the entries that do so loosely, and the shares of the judge.
    """
    true, said, questions = true_cells(kept), said_cells(kept), kept["truth"]["questions"]
    judged = kept["verdicts"] | kept["limited"]
    pairs = pairs_of(true) if right else pairs_of(said[ANY]) - pairs_of(said[ANY] & true)
    order = [relation for relation, _ in QUESTIONS]
    for head, relation in sorted(pairs, key=lambda x: (order.index(x[1]), x[0])):
        every = {(head, relation, place) for place in PLACES}
        cells = every & (true if right else said[ANY])
        asked = {(relation, place) for _, _, place in cells}
        own = [name for name in EXACT if {(head, name.relation, x) for x in name.places} & cells]
        at = kept["truth"]["heads"].index(head)
        yield {
            "head": head,
            "relation": relation,
            "beyond": [questions[f"{relation} {place}"]["shares"][at] for place in PLACES],
            "named": [x for x in (LISTS, BY_LINE, BY_ROLE, IN_PART, PART_THERE) if said[x] & cells],
            "nameable": bool(own),
            "entries": [x for x in kept["entries"][head] if asked & named_loosely(x)],
            "lines": [x for x in kept["lines"][head] if asked & named_by_line(x)],
            "judged": {x: judged[x][head] for one in own for x in (one.judged, one.limited) if x},
        }


def page_templates() -> Environment:
    """Return what fills the templates of pages that stand beside this file."""
    here = FileSystemLoader(Path(__file__).parent)
    return Environment(
        loader=here, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )


def stories_truth_page(kept: Mapping[str, Any]) -> str:
    """Return the page, from what was measured."""
    pages = page_templates()
    pages.filters |= {"interval": _interval, "share": _share, "entry": _entry, "line": _line}
    rows = [x for x in kept["truth"]["rows"] if x["true"]]
    asked = [(x["relation"], x["place"]) for x in rows]
    letters = {
        form: [x for by_head in kept[form].values() for x, _ in by_head.values()]
        for form in ("verdicts", "limited")
    }
    return pages.get_template("stories_truth.md.j2").render(
        kept,
        found=rows,
        pairs=[*pair_rows(kept, True)],
        wrong=[*pair_rows(kept, False)],
        absent=[x for x in QUESTIONS if x not in asked],
        most={k: int(np.argmax(x["shares"])) for k, x in kept["truth"]["questions"].items()},
        agreement=agreement_rows(kept),
        that_tell=that_tell_which(kept),
        letters=letters,
        table={"exact": EXACT, "loose": LOOSE, "scores": SCORES, "rules": RULES, "size": JUDGED}
        | {"limited": AT_QUERIES, "size_there": AT_MOST},
    )


def _share(hits: int, n: int) -> str:
    low, high = share_interval(hits, n)
    return f"{hits:,} of {n:,} [{low:.1%}, {high:.1%}]"


def _interval(values: Sequence[float]) -> str:
    return f"{values[0]:.2f} [{values[1]:.2f}, {values[2]:.2f}]"


def _line(line: Sequence[Any]) -> str:
    rule, queries, share, position = line
    where = queries if queries.startswith("before ") else f"from {queries}"
    return f"{rule} {where} {share:.2f} ({position:.2f})"


def _entry(entry: Sequence[Any]) -> str:
    rule, queries, share, members = entry
    words = f"{rule} ({' '.join(x.strip() or 'line end' for x in members)})" if members else rule
    return f"{words}{' from ' + queries if queries else ''} {share:.2f}".replace("|", "\\|")
