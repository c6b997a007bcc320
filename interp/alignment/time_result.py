"""Error of token times by cross attention: the result, heads chosen and judged, and the null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.alignment.timed_rows import TimedRows
from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.statistics import holm
from interp.draw.parts import ALL_EQUAL, FoundPart, between, result_part

Array = np.ndarray
CHOSEN = "chosen heads together"
DECLARED = "declared heads together"
GIVEN = "given heads together"
NULL_DRAWS = 199


def time_error_rows(
    names: Sequence[str],
    of: Sequence[tuple[Head, ...]],
    errors: Float[Array, "row recording"],
    null: Float[Array, " row"],
    even: float,
    p: Float[Array, " row"],
    starts: Float[Array, "row recording token"],
    judged: Sequence[int],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per head and set of heads; see `word_time_errors` for the columns."""
    summary = cluster_summary(errors.T)
    single = [heads[0] if len(heads) == 1 else None for heads in of]
    columns = {
        "heads_read": list(names),
        "stack": "cross",
        "layer": [np.nan if head is None else head.layer for head in single],
        "head": [np.nan if head is None else head.head for head in single],
        "score": summary.score,
        "sem": summary.sem,
        "null": null,
        "p": p,
        "n": summary.n,
        "even": even,
        "p_holm": holm(p),
    }
    facts = {
        "metric": "time_alignment_error",
        "unit": "seconds",
        "evenly_spaced": even,
        "judged": tuple(judged),
    }
    return ResultRows(
        "TimeAlignments",
        columns,
        ("heads_read",),
        made,
        facts,
        errors,
        arrays={"of": tuple(of), "starts": starts},
        by="lowest",
    )


def heads_of_row(found: ResultRows, name: str) -> tuple[Head, ...]:
    """Return the heads of a row of `word_time_errors` by its name; empty if there is none."""
    found.require_kind("TimeAlignments", "word_time_errors")
    return dict(zip(found.columns["heads_read"], found.of, strict=True)).get(name, ())


def judged_times(
    heads: Sequence[Head],
    timed: Sequence[TimedRows],
    *,
    sets: Mapping[str, Sequence[Head]],
    n_heads: int,
    select: float,
    seconds: float,
    n_random: int,
    seed: int,
    provenance: Mapping[str, Any],
) -> ResultRows:
    """Return the error of each head, of sets of heads, and of heads that some recordings choose."""
    n = len(timed)
    if n_heads < 0 or not 0 < select < 1 or n_random < 1:
        raise OptionError(
            f"n_heads={n_heads}, select={select}, n_random={n_random}: choose is 0 or more, "
            "select lies between 0 and 1, and null_draws is at least 1"
        )
    if n_heads and n < 4:
        raise PromptError(
            f"times of {n} recordings; choosing heads on some and judging them on others needs "
            "four or more. Name the heads, or choose none"
        )
    rng = np.random.default_rng(seed)
    judged = list(range(n))
    rows = {str(head): [at] for at, head in enumerate(heads)}
    if n_heads:
        order = rng.permutation(n)
        cut = min(max(1, round(select * n)), n - 2)
        judged = sorted(order[cut:].tolist())
        alone = [timed[i].errors(list(rows.values()), seconds) for i in sorted(order[:cut])]
        first = np.argsort(np.mean(alone, 0), kind="stable")[:n_heads]
        rows[CHOSEN] = sorted(first.tolist())
    for name, which in sets.items():
        if which:
            rows[name] = [list(heads).index(head) for head in which]
    every, judged_rows = list(rows.values()), [timed[i] for i in judged]
    starts = np.full((len(rows), len(judged_rows), max(len(t.known) for t in judged_rows)), np.nan)
    draws = np.zeros((len(rows), n_random))
    for at, one in enumerate(judged_rows):
        starts[:, at, : len(one.known)] = one.starts(every) * seconds
        draws += one.shuffled_errors(every, seconds, n_random, rng) / len(judged_rows)
    errors = np.stack([one.errors(every, seconds) for one in judged_rows], 1)
    p = (1 + (draws <= errors.mean(1)[:, None] + 1e-12).sum(1)) / (1 + n_random)
    return time_error_rows(
        tuple(rows),
        tuple(tuple(heads[h] for h in which) for which in every),
        errors,
        draws.mean(1),
        float(np.mean([one.even_error(seconds) for one in judged_rows])),
        p,
        starts,
        judged,
        provenance,
    )


def time_alignments_summary(found: ResultRows) -> str:
    """Return the row of the lowest error, beside its null and evenly spaced tokens."""
    if not len(found):
        return "TimeAlignments without rows"
    first = found.top(1).to_pandas().iloc[0]
    return (
        f"TimeAlignments of {len(found)} rows on {found.per_prompt.shape[1]} judged recordings; "
        f"lowest error {first['heads_read']}: {first['score']:.3g} ± {first['sem']:.2g} s, token "
        f"rows in random order {first['null']:.3g} s, evenly spaced tokens "
        f"{found.evenly_spaced:.3g} s"
    )


def time_errors_part(found: ResultRows) -> FoundPart:
    """Return the error of token times by every cross-attention head, and by sets of heads."""
    frame: Any = found.to_pandas()
    notes, sets = {}, []
    for heads, row in zip(found.of, frame.to_dict("records"), strict=True):
        sentence = (
            f"{row['score']:.3f}{between(row['low'], row['high'])} s from the gold times, "
            f"{row['null']:.3f} s with its rows in random order (p {row['p_holm']:.2g} by Holm)"
        )
        if row["heads_read"] == str(heads[0]):
            notes[f"cross {heads[0]}"] = f"Times of speech: {sentence}"
        else:
            names = ", ".join(f"cross {head}" for head in heads)
            sets.append((row["heads_read"], names, sentence, heads))
    text = (
        f"Mean distance of start times to gold times on {len(found.judged)} judged recordings; "
        f"evenly spaced tokens {found.evenly_spaced:.3f} s."
    )
    text += "".join(
        f" {name.capitalize()} ({names}): {sentence}." for name, names, sentence, _ in sets
    )
    heads = dict.fromkeys(f"cross {head}" for *_, of in sets for head in of)
    shown = {"heads": heads, "notes": notes, "drop": ALL_EQUAL}
    return result_part(found, "speech", "Error of times of speech", text, **shown)


present("TimeAlignments", summary=time_alignments_summary, part=time_errors_part)
