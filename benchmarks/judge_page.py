"""Page of the benchmark of verdicts: what was asked, what was found, and every deviation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.judge_attack import SEARCHES
from benchmarks.judge_reserve import ATTACKS, CORPUS, SIZES, level
from interp.core.columns import with_noun
from interp.core.intervals import share_interval
from interp.profiles.held_back import ANSWERS, FEWEST, ONE_IN, POSITIVE
from interp.profiles.online_levels import ALPHA

WORDS = {
    "H": "holds",
    "P": "holds in part",
    "N": "does not hold",
    "O": "cannot be told",
    "R": "refused",
}
KINDS = {"right": "right", "near": "near miss", "wrong": "wrong"}
EXPECTED = {"right": "H", "near": "PNOR", "wrong": "NOR"}
REASONS = {
    "planted:refusal L1H3": "the config names the marker as a special token, special tokens count "
    "as the sink, and off the sink this head attends to nothing: there is nothing to judge",
    "trained:names L0H0": "mixed: in a row with an earlier copy 22 % of the attention off the sink "
    "is on other keys, of six at most, so that what is said is true and leaves half of the pattern",
}
"""Why verdicts are not as expected, by model and head."""
BEFORE = (
    "The judge was changed twice after verdicts were seen. Of the first two models, on the second "
    "draw, 2 of 10 near misses held as predicates: that a head attends to words that sort after "
    "the current one, where it attends to those before it (.98), and the same by frequency (.98). "
    "The keys that a head avoids explained it as well as the others. Since then the keys of a "
    "hypothesis never count for less than the rest. Of 13 proposed lists that were judged first, "
    "those of places and tokens were seldom .1 ahead of themselves on the tokens of another "
    "document, where their places are the same (none of the 13 held, 8 held in part). Since then "
    "whatever reads tokens is judged beyond position. All verdicts on this page are of that, but "
    "predicates on the draws after the first, which were measured before it: on the first draw it "
    "changed no share of a predicate."
)
"""What the first verdicts showed, and what was changed for it."""
Row = tuple[str, str, str, str, str, Sequence[float | None]]


def rows_of(kept: Mapping[str, Any]) -> Iterator[Row]:
    """Yield model, head, kind, form, letters of the verdicts and shares."""
    for model, entry in kept["models"].items():
        for head, of_head in entry["heads"].items():
            for kind in KINDS:
                for form, (letters, shares) in sorted(of_head.get(kind, {}).items()):
                    yield model, head, kind, form, letters, shares


def judge_page(kept: Mapping[str, Any]) -> str:
    """Return the page, from the stored rows."""
    rows = [*rows_of(kept)]
    heads = sum(len(entry["heads"]) for entry in kept["models"].values())
    seconds = sum(entry["seconds"] for entry in kept["models"].values())
    n = sum(len(row[4]) for row in rows)
    parts = [
        "# Verdicts of the judge where the answer is known",
        f"{heads} heads of {len(kept['models'])} models: planted, compiled from programs, and "
        "trained. What a head attends to is known from its weights, or of a trained head by "
        "counting: at least .6 of its attention off the sink is on the keys of its rule (of the "
        "bundled induction heads on three copies of random tokens; on two copies it is .51, since "
        "first copies have no match). Of each head a right "
        "hypothesis, a near miss and a wrong one were judged by `interp.judge`, on 48 documents "
        "made for the mechanism and 24 others to fit on. On the first of four draws of documents "
        "each was asked as a predicate, a list and a program, on the others as a predicate. A "
        "model has one ledger per draw, in which questions come in random order and have documents "
        f"of their own. {n:,} verdicts, {seconds / 60:.0f} minutes of processor time. "
        "Command: `python -m benchmarks.judge`.",
        "Asked for: right ones hold (at least 95 %), near misses never hold, wrong ones neither "
        "hold nor hold in part (at most 5 %). In brackets Wilson 95 % intervals over heads, since "
        "verdicts on one head are not independent: a head counts as expected if all of its "
        "verdicts are.",
        _table(
            ("hypothesis", *WORDS.values(), "verdicts as expected", "heads as expected", "alike"),
            [_kind_row(kind, rows) for kind in KINDS],
        ),
        "*Alike* are heads with the same word on all four draws, asked as a predicate. *Refused* "
        "is an error that says why the hypothesis cannot be judged.",
        BEFORE,
        "## By form",
        _table(
            ("hypothesis", "form", "verdicts", "as expected", "smallest share", "largest share"),
            [
                _form_row(kind, form, rows)
                for kind in KINDS
                for form in ("predicate", "list", "program")
            ],
        ),
        "Shares are those explained of what the reference leaves; of right hypotheses the smallest "
        "matters, of others the largest. A hypothesis that is right on half of the documents can "
        "explain about .5 at most and rightly holds in part.",
        "## Deviations",
        *_deviations(rows),
    ]
    if "claims" in kept:
        parts += _claims(kept["claims"])
    if kept.get("attack"):
        parts += _attack(kept["attack"])
    if "reserve" in kept:
        parts += _reserve(kept["reserve"])
    if "loop" in kept:
        parts += _loop(kept["loop"])
    else:
        parts += ["## Proposed lists", "Not measured: `--loop MODEL STORIES` needs both."]
    return "\n\n".join([*parts, kept.get("made", "")]).rstrip() + "\n"


def _kind_row(kind: str, rows: Iterable[Row]) -> tuple[str, ...]:
    mine = [row for row in rows if row[2] == kind]
    letters = "".join(row[4] for row in mine)
    good = sum(letter in EXPECTED[kind] for letter in letters)
    by_head: dict[tuple[str, str], str] = {}
    drawn: dict[tuple[str, str], str] = {}
    for model, head, _, form, of_row, _ in mine:
        by_head[model, head] = by_head.get((model, head), "") + of_row
        if form == "predicate":
            drawn[model, head] = of_row
    heads = sum(set(x) <= set(EXPECTED[kind]) for x in by_head.values())
    low, high = share_interval(heads, len(by_head))
    alike = sum(len(set(x)) == 1 for x in drawn.values())
    counts = Counter(letters)
    return (
        KINDS[kind],
        *(str(counts[letter]) for letter in WORDS),
        f"{good} of {len(letters)} ({good / max(1, len(letters)):.1%})",
        f"{heads} of {len(by_head)}, {heads / max(1, len(by_head)):.1%} [{low:.1%}, {high:.1%}]",
        f"{alike} of {len(drawn)}",
    )


def _form_row(kind: str, form: str, rows: Iterable[Row]) -> tuple[str, ...]:
    mine = [row for row in rows if row[2:4] == (kind, form)]
    letters = "".join(row[4] for row in mine)
    shares = [share for row in mine for share in row[5] if share is not None]
    good = sum(letter in EXPECTED[kind] for letter in letters)
    ends = (f"{min(shares):.2f}", f"{max(shares):.2f}") if shares else ("", "")
    return KINDS[kind], form, str(len(letters)), str(good), *ends


def _deviations(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the table of the verdicts that are not as expected, with the reason."""
    lines = []
    for model, head, kind, form, letters, shares in rows:
        if set(letters) <= set(EXPECTED[kind]):
            continue
        words = ", ".join(f"{WORDS[x]} {n}" for x, n in Counter(letters).items())
        known = [share for share in shares if share is not None]
        mean = f"{np.mean(known):.2f}" if known else ""
        reason = REASONS.get(f"{model} {head}", "unexplained")
        lines.append((f"{model} {head}", KINDS[kind], form, words, mean, reason))
    yield _table(("head", "hypothesis", "form", "verdicts", "mean share", "reason"), lines)


def _claims(claims: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section on claims that heads do a task."""
    kinds = [kind for kind in next(iter(claims.values())) if kind != "seconds"]
    minutes = sum(row["seconds"] for row in claims.values()) / 60
    yield "## Claims about a task"
    yield (
        f"Of {len(claims)} tasks of planted and trained models whose heads are known, two claims "
        "were judged on four draws of 48 pairs, each as the first question of a ledger: that all "
        "heads of the circuit do the task, and that as many others do, the next free ones of the "
        f"same layers. {minutes:.0f} minutes of processor time. Command: `python -m "
        "benchmarks.judge --claims`."
    )
    lines = []
    for kind in kinds:
        letters = Counter("".join(row[kind][1] for row in claims.values()))
        shares = [share for row in claims.values() for share in row[kind][2]]
        every = [set(row[kind][1]) == {"H"} for row in claims.values()]
        low, high = share_interval(sum(every), len(every))
        lines.append(
            (
                kind,
                *(str(letters[x]) for x in WORDS),
                f"{sum(every)} of {len(every)} [{low:.0%}, {high:.0%}]",
                f"{min(shares):.2f} to {max(shares):.2f}",
            )
        )
    columns = ("claim", *WORDS.values(), "tasks on which all hold", "shares lost")
    yield _table(columns, lines)
    right = [(task, *row[kinds[0]]) for task, row in claims.items()]
    odd = [
        (*case[:3], f"{np.mean(case[3]):.2f}" if case[3] else "")
        for case in right
        if set(case[2]) != {"H"}
    ]
    if odd:
        yield "Right claims that do not always hold (H holds, P in part, N not, O open, R refused):"
        yield _table(("task", "heads", "four draws", "mean share lost"), odd)


def _attack(attack: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section on hypotheses that are chosen by the judge's own answers."""
    yield "## Hypotheses chosen by the answers"
    yield (
        "A wrong hypothesis about L1H0 of bundled:induction names one distance per document, by a "
        "hash of its tokens, which is right for one document in eight. Each question changes the "
        "distances of one of 32 buckets of documents and keeps them if the share is not smaller. "
        "Two such searches take turns, one about all queries, one limited to half of them by a "
        "hash of their tokens, which every fourth of its questions changes; the ledger counts both "
        "as questions. 16 documents judge: fresh ones with one ledger, or the same ones, each time "
        "as the first question of a ledger (level .00027). On the same documents the answers are "
        "learned, and false verdicts follow; the largest share is in the last column. In brackets "
        "the first false verdict, and the number of the question in its search. "
        f"{sum(row['seconds'] for row in attack.values()) / 60:.0f} minutes of processor time. "
        "Command: `python -m benchmarks.judge --attack QUESTIONS`."
    )
    lines = []
    for arm, row in attack.items():
        for of, letters, best in zip(SEARCHES, row["letters"], row["best"], strict=True):
            counts, false = Counter(letters), [x in "HP" for x in letters]
            first = f" (number {false.index(True) + 1})" if any(false) else ""
            found = f"{sum(false)} of {len(letters)}{first}"
            lines.append((arm, of, *(str(counts[x]) for x in WORDS), found, f"{best:.2f}"))
    columns = ("asked", "about", *WORDS.values(), "false verdicts (holds, in part)")
    yield _table((*columns, "largest share"), lines)


def _reserve(reserve: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section on documents that are asked again."""
    yield "## Where documents run out"
    bounds = ", ".join(f"{x:.2f} for {n:,} documents" for n, x in reserve["certified"])
    levels = ", ".join(f"{level(k):.1e}" for k in range(POSITIVE))
    yield (
        f"One document in {ONE_IN} of a corpus of at least {FEWEST} is held back, by a hash of its "
        "content. Once fewer than 8 fresh ones are left, these judge and answer without numbers: "
        f"at most {POSITIVE} of {ANSWERS} answers are positive (holds, holds in part), after k "
        f"positive ones at level {ALPHA} / ({POSITIVE} C({ANSWERS}, k + 1) 2^k): {levels}. The "
        f"levels of all sequences of answers add up to {ALPHA}, so that the chance of any false "
        "positive answer stays below it (SparseValidate, whose answers have a short description, "
        "of Dwork et al. 2015, arXiv 1506.02629). The thresholds with noise of the same paper "
        f"certify less: for one positive answer of {ANSWERS} a mean must be above its threshold by "
        f"{bounds} (8 ln(2k/{ALPHA}) / (epsilon n) + exp(epsilon) - 1, the smallest over epsilon). "
        "Command: `python -m benchmarks.judge --reserve`."
    )
    columns = [f"positive answer {k + 1}" for k in range(POSITIVE)]
    yield "Documents needed, if a claim explains the same share of each:"
    yield _table(
        ("share explained", "needed for", *columns),
        [(f"{x:.2f}", f"more than {least}", *map(str, n)) for x, least, *n in reserve["needed"]],
    )
    known, n_heads = reserve["known"], reserve["known"][str(SIZES[0])][-1]
    fooled = {n: counts for n, *counts in reserve["fooled"]}
    yield (
        f'Of the {n_heads} known heads, those for which a right predicate is answered "holds", on '
        f"so many documents; and of {ATTACKS} simulated attacks of {ANSWERS} questions, those that "
        "get a false positive answer. A simulated claim is right on one document in ten, so that "
        "none holds in part. Without numbers the attack draws claims anew; if answers state means, "
        "it changes one part of the best claim so far, and gets such answers at the same levels:"
    )
    yield _table(
        ("documents", *columns, "attacks without numbers", "attacks with means"),
        [(str(n), *map(str, known[str(n)][:-1]), *map(str, fooled[n])) for n in SIZES],
    )
    attacks = reserve["model"]
    before = "".join(attack["before"] for attack in attacks)
    words = Counter(attack["right"] for attack in attacks)
    rights = ", ".join(f'"{word}" in {n}' for word, n in words.items())
    sizes = ", ".join(str(attack["n"]) for attack in attacks)
    yield (
        f"On a model: the wrong hypotheses of the attack above, drawn anew for every question, "
        f"about a corpus of {CORPUS} documents, in {with_noun(len(attacks), 'attack')}. "
        f"{len(before)} questions had fresh documents, with "
        f"{sum(x in 'HP' for x in before)} false verdicts; of "
        f"{ANSWERS - 1} wrong questions each about {sizes} documents held back "
        f"{sum(a['false'] for a in attacks)} got a false positive answer. The last question of "
        f"each, that L1H0 follows its rule, induction, was answered {rights}. So few "
        "attacks show no rate; the bound above is what limits it."
    )
    yield (
        f"A corpus of n documents has n (1 - 1/{ONE_IN}) for fresh questions: of 320, with 64 that "
        "judge each question and 32 that fit, three questions and half of another instead of four "
        "and a half."
    )


def _loop(loop: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section on lists that a search proposed."""
    rows = loop["rows"]
    yield "## Proposed lists"
    yield (
        f"`interp.profile` chose lists for the heads of {loop['model']} on {loop['proposed']} "
        f"stories; {loop['heads'] - loop['without']} of {loop['heads']} heads have a list with an "
        "entry that they attend to. The list as it is printed (of a group of tokens those that are "
        f"shown) was judged for {len(rows)} of them, drawn at random, on {loop['documents']} "
        f"of the {loop['stories'] - loop['proposed']} other stories, and so was the list of "
        "another head, at random. There are too few stories for one ledger: each list is the first "
        "question of a ledger of its own (level .00027), which is sound here since all lists were "
        'chosen before any verdict: the chance that any of the words "holds" and "holds in part" '
        f"is false is at most {2 * loop['planned'] * 2 * 0.00027:.1%}, by Bonferroni over the "
        "planned heads. "
        f"{loop['seconds'] / 60:.0f} minutes of processor time. "
        "Command: `python -m benchmarks.judge --loop MODEL STORIES`."
    )
    lines = []
    for name, at in (("its own list", 0), ("the list of another head", 2)):
        letters = Counter(row[at] for row in rows.values())
        shares = np.array([row[at + 1] for row in rows.values() if row[at + 1] is not None])
        quarters = " ".join(f"{x:.2f}" for x in np.quantile(shares, (0, 0.25, 0.5, 0.75, 1)))
        lines.append((name, *(str(letters[x]) for x in WORDS), quarters))
    yield _table(
        ("list", *WORDS.values(), "share explained: least, quartiles, largest"),
        lines,
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
