"""Rank comparisons of several importances of the same heads, with chance levels.

The importances answer different questions (`interp.causal.comparison.questions`), so a low
agreement is a finding, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from interp.causal.comparison.draws import agreement_interval
from interp.causal.comparison.ranking import Ranking, first_names
from interp.causal.comparison.result import MEASURES, Comparison
from interp.causal.importance import Importance
from interp.core.errors import OptionError
from interp.core.table import HeadTable
from interp.model.content import versions

Array = np.ndarray
N_BOOT = 1000


def compare_importances(
    importances: Mapping[str, Importance | HeadTable] | Sequence[Importance | HeadTable],
    *,
    ks: Sequence[int] | None = None,
    allow_tasks: bool = False,
    n_boot: int = N_BOOT,
    seed: int = 0,
) -> Comparison:
    """Compute rank correlations and top-k overlaps of importances of the same players.

    Args:
        importances: a mapping of display names to importances, or a list that is named by its
            metrics, without the options they share. Rankings use `Importance.helps`: the player
            that helps the task most comes first. Magnitudes have no sign, so a head that harms the
            task ranks high in them and last in signed ones.
        ks: lengths of the top lists; by default 1, 2, 4, ... up to half of the players.
        allow_tasks: permit importances on different tasks (or prompts).
        n_boot: number of bootstrap draws of prompts for the intervals; 0 for none.
        seed: seed of the bootstrap.

    Raises:
        OptionError: there are fewer than two importances, or their models, players or tasks differ.
    """
    given = (
        list(importances.items())
        if isinstance(importances, Mapping)
        else [(None, x) for x in importances]
    )
    if len(given) < 2:
        raise OptionError(f"{len(given)} importances; a comparison needs at least two")
    rankings = [Ranking.of(x, name) for name, x in given]
    if not isinstance(importances, Mapping):
        names = _short([r.name for r in rankings])
        rankings = [replace(r, name=name) for r, name in zip(rankings, names, strict=True)]
    names = [r.name for r in rankings]
    if len(set(names)) < len(names):
        twice = next(x for x in names if names.count(x) > 1)
        raise OptionError(
            f"two importances have the name {twice}; give a mapping of different names to them"
        )
    rankings = [_aligned(rankings[0], r, allow_tasks) for r in rankings]
    chosen = _lengths(ks, len(rankings[0].labels))
    if n_boot < 0:
        raise OptionError(f"n_boot={n_boot}; it must be 0 or more")
    scores = np.stack([r.helps for r in rankings])
    intervals = {
        what: agreement_interval(rankings, scores, measure, n_boot, seed)
        for what, measure in MEASURES.items()
    }
    provenance = {
        "model": rankings[0].about["model"],
        "content_hash": rankings[0].about["content_hash"],
        "importances": {r.name: r.about for r in rankings},
        "n_boot": n_boot,
        "seed": seed,
        "versions": versions(),
        "made_by": "interp.causal.compare_importances",
    }
    return Comparison(
        tuple(rankings),
        MEASURES["spearman"](scores),
        MEASURES["kendall"](scores),
        intervals["spearman"],
        intervals["kendall"],
        chosen,
        provenance,
    )


def _aligned(first: Ranking, other: Ranking, allow_tasks: bool) -> Ranking:
    """Return `other` in the order of the players of `first`."""
    pair = f"{first.name} and {other.name}"
    a, b = first.about, other.about
    key = "content_hash" if a["content_hash"] and b["content_hash"] else "model"
    if a[key] != b[key]:
        raise OptionError(
            f"{pair} are of different models ({a['model']}, {b['model']}); compare importances of "
            f"one model"
        )
    if a["task_hash"] and b["task_hash"] and a["task_hash"] != b["task_hash"] and not allow_tasks:
        what = "tasks" if a["task"] != b["task"] else "prompts of one task"
        raise OptionError(
            f"{pair} are on different {what} ({a['task']}, {b['task']}); allow_tasks=True permits "
            f"the comparison"
        )
    only_a = [x for x in first.labels if x not in set(other.labels)]
    only_b = [x for x in other.labels if x not in set(first.labels)]
    if only_a or only_b:
        raise OptionError(
            f"{pair} score different players: {len(first.labels)} and {len(other.labels)} of them, "
            f"{first_names(only_a or only_b)} only in {first.name if only_a else other.name}"
        )
    place = {label: i for i, label in enumerate(other.labels)}
    order = [place[label] for label in first.labels]
    per_prompt = None if other.per_prompt is None else other.per_prompt[order]
    helps = other.helps[order]
    return replace(other, labels=first.labels, helps=helps, per_prompt=per_prompt, players=None)


def _short(labels: Sequence[str]) -> list[str]:
    """Return metric labels without the options that all of them share."""
    split = [label.partition(":") for label in labels]
    shared = set.intersection(*(set(options.split(",")) for _, _, options in split))
    short = []
    for name, _, options in split:
        options_left = [x for x in options.split(",") if x and x not in shared]
        short.append(f"{name}:{','.join(options_left)}" if options_left else name)
    return short if len(set(short)) == len(set(labels)) else list(labels)


def _lengths(ks: Sequence[int] | None, n: int) -> tuple[int, ...]:
    if ks is None:
        return tuple(2**i for i in range(n) if 2**i <= max(1, n // 2))
    chosen = tuple(dict.fromkeys(int(k) for k in ks))
    wrong = [k for k in chosen if not 1 <= k <= n]
    if wrong or not chosen:
        raise OptionError(f"ks={list(ks)}; each length must lie between 1 and {n} players")
    return chosen
