"""Page of the benchmark of ways to find circuits."""

from __future__ import annotations

from typing import Any

NOTHING = 1e-3  # of the largest score: below it an edge of a compiled program counts as not found
SMALLER = {"screen_verify": {"candidates": 10, "primaries": 2}, "codes": {"repeats": 2}}
TRAINING_STEPS = 600
TRAINED_TASKS = ("greater_than", "docstring", "subject_verb", "ioi")


def report(rows: list[dict[str, Any]], edges: list[dict[str, Any]]) -> str:
    """The page."""
    lines = [
        "# Ways to find circuits",
        "",
        "AUROC of the sizes of scores against the known circuit; passes over all pairs; time as a"
        " multiple of one forward pass over them."
        f" {' and '.join(map(str, sorted({r['pairs'] for r in rows})))} pairs. Two CPU cores shared"
        " with other work. Made by `benchmarks/circuits.py`.",
        "",
        "Planted models of 3 or 4 layers of 8 heads: a previous-token and an induction head among"
        " random ones; *bystander* has a head with the induction head's attention that nobody"
        " reads, *backup* one that works only when the induction head does not, *zoo* both, and a"
        " head that takes half of the prediction back. Model of stories: two thirds of the"
        f" templates, fewer candidates ({SMALLER['screen_verify']['candidates']}) and autoencoders"
        f" ({SMALLER['codes']['repeats']}); its circuit is not known.",
        *_of_trained(rows),
        "",
        "| model, task | method | AUROC | forwards | backwards | time |",
        "|---|---|---|---|---|---|",
    ]
    notes: list[str] = []
    for row in rows:
        start = f"| {row['model']}, {row['task']} | {row['method']} |"
        if "note" in row:
            lines.append(f"{start} note {_noted(row['note'], notes)} | | | |")
            continue
        truth = "" if row["auroc"] is None else f"{row['auroc']:.3f}"
        lines.append(
            f"{start} {truth} | {row['forwards']:.0f} | {row['backwards']:.0f} |"
            f" {row['times_a_forward']:.0f}x |"
        )
    lines += ["", "## Known edges", "", *_known_edges(edges, notes)]
    if notes:
        lines += ["", "Notes:", *(f"{i + 1}. {note}" for i, note in enumerate(notes))]
    return "\n".join(lines) + "\n"


def _of_trained(rows: list[dict[str, Any]]) -> list[str]:
    if not any(row["model"].startswith("trained") for row in rows):
        return []
    return [
        "",
        "*trained on four tasks*: a GPT-2 of 3 layers of 4 heads, trained in"
        f" {TRAINING_STEPS} steps on {', '.join(TRAINED_TASKS)}.",
    ]


def _noted(note: str, notes: list[str]) -> int:
    """The number of a note below the tables, the same for the same words."""
    if note not in notes:
        notes.append(note)
    return notes.index(note) + 1


def _known_edges(rows: list[dict[str, Any]], notes: list[str]) -> list[str]:
    names = list(dict.fromkeys(r["program"] for r in rows))
    by_method: dict[str, dict[str, dict]] = {}
    for row in rows:
        by_method.setdefault(row["method"], {})[row["program"]] = row
    lines = [
        "AUROC of all edges of the residual graph against the known ones: those that were planted,"
        " or, in programs compiled by Tracr, those through which the weights carry something of the"
        f" words to the output. {rows[0]['pairs']} pairs; in programs, the share of the clean"
        f" output that is left. Scores below {NOTHING:g} of the largest count as nothing. In"
        " brackets, the known edges in the method's own set (or, marked with *, among as many first"
        " edges), and how many others are. Attention in these programs is all or nothing, so one"
        " gradient by its scores is nothing. `reverse` reads the length of the list: pairs of equal"
        " length show none of those edges, pairs of two lengths (filled with padding) show all.",
        "",
        "| method | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for method, found in by_method.items():
        cells = []
        for name in names:
            row = found[name]
            if "note" in row:
                cells.append(f"note {_noted(row['note'], notes)}")
                continue
            star = "" if row["own_set"] else "*"
            exact = (
                "exact"
                if (row["hit"], row["extra"]) == (row["true"], 0)
                else (f"{row['hit']} of {row['true']}, {row['extra']} others")
            )
            cells.append(f"{row['auroc']:.3f} ({exact}{star})")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines
