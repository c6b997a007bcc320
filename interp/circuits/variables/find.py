"""Search of the heads, layers and streams that hold the variables of a computation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from jaxtyping import Bool, Int

from interp.bundled import usual_task
from interp.circuits.identity import model_content
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.steps import advance, counted, following, step
from interp.circuits.stored_steps import Kept
from interp.circuits.variables.interchanges import (
    INDUCTION,
    Interchange,
    PlacedInterchange,
    drawn_interchanges,
    place_interchanges,
    read_interchanges,
)
from interp.circuits.variables.places import (
    FeatureSubspace,
    HeldPlace,
    InterchangeRuns,
    Subspace,
    dictionary_place,
    placed_at,
)
from interp.circuits.variables.rows import (
    LEAST_TEMPLATES,
    FoundAt,
    frequent_share,
    variable_rows,
)
from interp.circuits.variables.search import Method, random_like, search, varying, whole
from interp.core.errors import OptionError, UnknownName
from interp.core.result_rows import ResultRows
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.core.protocols import Progress
    from interp.dictionaries.dictionary import Dictionary
    from interp.model.model import Model

PARTS = (0.5, 0.7)  # shares at which the pairs part: to fit, to choose the rank, to judge
LEAST = 12  # pairs in each part whose answer changes
MOVED = 0.02  # least share of answers that must change when all of a place is exchanged
RANDOM = 8  # random subspaces


@takes_model
def find_variables(
    model: Model,
    pairs: Sequence[Interchange] | str | Path | None = None,
    nodes: Sequence[str] | None = None,
    *,
    method: Literal["rotation", "boundless", "mask", "heads", "features"] = "rotation",
    ranks: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    steps: int = 100,
    isolate: bool = False,
    dictionary: str | Path | Dictionary | None = None,
    seed: int = 0,
    resume: str | os.PathLike | None = None,
    progress: Progress | None = None,
) -> ResultRows:
    """Search the subspaces of heads, layers and streams that hold a variable of a computation.

    An interchange is a pair of prompts with the answer to the first if one variable of a stated
    computation had its value from the second. At each place, a subspace of what it holds is fitted
    so that the model gives this answer when the subspace, and nothing else, has the value of the
    second prompt. It is fitted on half of the pairs; its rank is chosen on a fifth, and it is
    judged on the others.

    A variable is found at a place if the answers come more often than by chance: more often than
    the largest of what random subspaces of the same rank give, what a fit to exchanged answers
    gives, and the share of the most frequent answer. It must also be found while only that part of
    the change is made that varies over the prompts: otherwise the subspace joins a direction that
    varies, and that nothing reads, with one that is read, and that never varies ("dormant").

    Args:
        model: The model.
        pairs: Interchanges, or the path of a file of them (see `read_interchanges`). By default
            those of who has a thing in a story if the model is `bundled:stories` or a sibling,
            and of induction on random tokens otherwise, each with two variables. Pairs whose first
            prompt the model answers otherwise are left out and counted.
        nodes: Heads (L5H4), all heads of a layer (L5), the stream that leaves it (stream5), or
            several together (L5H4+L6H0); by default all single ones.
        method: "rotation" (distributed alignment search: k orthonormal directions), "boundless"
            (a whole rotation and a learned number of its directions), "mask" (a mask over single
            coordinates), "heads" (a mask over all heads of the model: which of them hold it
            together) or "features" (a mask over the features of a dictionary, whose codes are
            exchanged; what the dictionary does not reconstruct stays).
        ranks: Numbers of directions that a rotation tries, from the largest down; of those
            that are within one standard error of the best the smallest is judged. By default powers
            of 2 up to half the width of the place, and its whole.
        positions: Positions at which places are exchanged, counted from the end if negative; each
            is a place of its own. By default all positions together.
        steps: Steps of each fit.
        isolate: Fit with the pairs of the other variables as well, whose answers must stay
            (multi-task alignment search); there must be two variables.
        dictionary: With method="features": a dictionary, or its folder, of "z" (all heads of its
            layer) or of "resid_post" (what leaves it), which is then the only place.
        seed: Seed of the fits, of random subspaces and of the halves.
        resume: A folder that stores finished places; the same call reuses them.
        progress: Called with the name of the current work, how much is done and how much there is.

    Returns:
        One row per variable and place: variable, place, stack, layer, head (-1 where the place is
        no single head), position, k (directions), score (share of the n judged pairs, of those
        whose answer the variable changes, that give the answer) with low and high, whole (the
        share if all of the place is exchanged), random, exchanged and frequent (the three controls;
        NaN where there is none, such as another subspace of the whole place), varying (the share if
        only the part that varies is exchanged), isolate (share of the judged pairs of other
        variables whose answer stays; NaN if there is one variable), disentangle (mean of score and
        isolate), p (against chance, by Holm for all rows), finding ("found", "dormant", "not
        shown", or "answers stay" where nothing changes even if all of the place is exchanged, so
        that nothing was fitted), heads and features (those of the mask) and fitted_on. Array
        `directions`: orthonormal, `[row, width, k]`, padded with NaN; of features, their rows of
        the decoder. Facts: `skipped`, pairs that were left out, by variable; `base_prompts`, hashes
        of all base prompts, by which `interp judge` tells fresh pairs.

    Raises:
        UnknownName: There is no such place or method.
        OptionError: There are too few pairs, or a number is out of range.
        PromptError: An interchange cannot be read.
        UnreadableAttention: The model has no residual graph.

    Unit: Share of pairs.

    Cost: Per place and number of directions, steps forward and backward passes over 64 prompts.

    Null: Random subspaces of the same rank, and a fit to answers exchanged between pairs.

    Not for: absence: a variable that several heads hold together gives little at each alone; give
    them as one place, or use method="heads".

    Reference: Geiger et al. 2023 (arXiv 2303.02536); boundless: Wu et al. 2023 (arXiv 2305.08809);
    dormant directions: Makelov et al. 2023 (arXiv 2311.17030); cause and isolate: Huang et al. 2024
    (arXiv 2402.17700)
    """
    if method not in get_args(Method):
        raise UnknownName("method", method, get_args(Method))
    if steps < 1 or (ranks is not None and not min(ranks, default=0) >= 1):
        raise OptionError(f"ranks={ranks}, steps={steps}; give 1 or more of each")
    searched = {"heads": "all heads", "features": "the features of its dictionary"}.get(method)
    if searched is not None and nodes is not None:
        raise OptionError(f'method="{method}" chooses among {searched}; leave nodes out')
    if (method == "features") != (dictionary is not None):
        raise OptionError('method="features" needs a dictionary, and the other methods need none')
    if isinstance(dictionary, str | Path):
        from interp.dictionaries import load_dictionary

        dictionary = load_dictionary(dictionary, model)
    if dictionary is not None:
        nodes = [dictionary_place(model, dictionary)]
        dictionary = dictionary.mapped(lambda x: x.to(model.device))
    graph, task = ResidualGraph.of(model), usual_task(model.name) or INDUCTION
    drawn = {"pairs": task} if pairs is None else {}
    if isinstance(pairs, str | Path):
        pairs = read_interchanges(Path(pairs))
    elif pairs is None:
        pairs = drawn_interchanges(model, task, seed=seed)
    rows = place_interchanges(model, pairs)
    known = placed_at(graph, nodes, method, positions, min(len(row.base) for row in rows))
    if isolate and len({row.variable for row in rows}) < 2:
        raise OptionError(
            "isolate needs the pairs of another variable, whose answers must stay; these pairs "
            "have one variable"
        )
    search_of = VariableSearch(graph, rows, method, ranks, steps, seed, isolate, dictionary)
    total = len(known) * len(search_of.names)
    fits: list[FoundAt] = []
    options = {"method": method, "ranks": ranks, "steps": steps, "isolate": isolate, "seed": seed}
    options |= drawn | ({} if dictionary is None else {"dictionary": repr(dictionary)})
    store = None
    if resume is not None:
        asked = {"pairs": [list(vars(row).values()) for row in rows], "options": options}
        store = Kept(resume, model_content(model) | asked)
    with following(store, progress), counted("variables", total):
        for name in search_of.names:
            for place in known:
                what = f"{name}, {place.name} at {place.position}"
                plain = step(what, lambda n=name, x=place: search_of.at(n, x).plain())
                fits.append(FoundAt.of_plain(name, place, plain))
                advance()
    fitted = {name: len(runs.rows) for name, runs in search_of.fit.items()}
    return variable_rows(graph, fits, search_of.judge, fitted, rows, search_of.skipped, options)


class VariableSearch:
    """Searches at places, for the variables of interchanges.

    Args:
        graph: the residual graph.
        rows: the interchanges.
        method, ranks, steps, seed, isolate, dictionary: see `find_variables`.
    """

    def __init__(
        self,
        graph: ResidualGraph,
        rows: Sequence[PlacedInterchange],
        method: Method,
        ranks: Sequence[int] | None,
        steps: int,
        seed: int,
        isolate: bool = False,
        dictionary: Dictionary | None = None,
    ) -> None:
        self.graph, self.ranks, self.isolate = graph, ranks, isolate
        self.dictionary = dictionary
        self.method: Method = method
        self.steps, self.seed = steps, seed
        self.names = list(dict.fromkeys(row.variable for row in rows))
        plain = InterchangeRuns(graph, rows)
        right = [
            row for row, answer in zip(rows, plain.plain, strict=True) if row.base_answer == answer
        ]
        self.skipped = {
            name: sum(row.variable == name for row in rows)
            - sum(row.variable == name for row in right)
            for name in self.names
        }
        self.fit: dict[str, InterchangeRuns] = {}
        self.choose: dict[str, InterchangeRuns] = {}
        self.judge: dict[str, InterchangeRuns] = {}
        for name in self.names:
            mine = [row for row in right if row.variable == name]
            parts = _parts(mine, seed)
            least = min(sum(row.changes for row in part) for part in parts)
            if least < LEAST:
                raise OptionError(
                    f"of the pairs of {name!r}, {self.skipped[name]} are answered otherwise by "
                    f"{graph.model.name} and {len(mine)} are left, in whose smallest part {least} "
                    f"change their answer; {LEAST} are needed: give more pairs, or another model"
                )
            self.fit[name] = InterchangeRuns(graph, parts[0])
            self.choose[name], self.judge[name] = (
                InterchangeRuns(graph, [row for row in part if row.changes]) for part in parts[1:]
            )

    def at(self, name: str, place: HeldPlace) -> FoundAt:
        """Search at one place."""
        fit, choose, judge = self.fit[name], self.choose[name], self.judge[name]
        everything = judge.answers(place, whole(place))
        moved, full = float((everything != judge.plain).mean()), _share(everything, judge)
        if moved <= MOVED:
            return FoundAt(name, place, moved, full)
        *smaller, largest = self._ranks(place)
        others = self._others(name)
        first = self._search(fit, place, largest, others)
        share = _share(choose.answers(place, first), choose)
        if self.method == "rotation" and self.ranks is None and not self.isolate:
            every = _share(choose.answers(place, whole(place)), choose)
            if every > share + _error(share, choose):
                return self._judged(name, place, whole(place), moved, full)
        chance = _share(choose.answers(place, random_like(first, self.seed)), choose)
        chance = max(chance, frequent_share(choose))
        if share <= chance + _error(chance, choose):
            # no more than by chance; smaller ranks and the control could not change this
            return self._judged(name, place, first, moved, full)
        for k in reversed(smaller):
            one = self._search(fit, place, k, others)
            if _share(choose.answers(place, one), choose) < share - _error(share, choose):
                break
            first = one
        subspace = first
        wrong, judged_wrong = (_exchanged(runs, self.seed) for runs in (fit, judge))
        most = max(x.shape[1] for x in subspace.basis)
        control = self._search(wrong, place, most, others)
        return replace(
            self._judged(name, place, subspace, moved, full),
            exchanged=_share(judged_wrong.answers(place, control), judged_wrong),
        )

    def _judged(
        self, name: str, place: HeldPlace, subspace: Subspace, moved: float, full: float
    ) -> FoundAt:
        fit, judge = self.fit[name], self.judge[name]
        if subspace.n_directions == 0:
            return FoundAt(name, place, moved, full, subspace)
        other = [
            _share(judge.answers(place, random_like(subspace, self.seed + at)), judge)
            for at in range(RANDOM)
            if subspace.n_directions < place.width  # of the whole there is no other
        ]
        inside = replace(subspace, inside=varying(fit, place))
        return FoundAt(
            name,
            place,
            moved,
            full,
            subspace,
            _hits(judge.answers(place, subspace), judge),
            _hits(judge.answers(place, inside), judge),
            float(np.mean(other)) if other else float("nan"),
            isolate=self._isolated(name, place, subspace),
            features=subspace.features if isinstance(subspace, FeatureSubspace) else (),
        )

    def _search(
        self,
        fit: InterchangeRuns,
        place: HeldPlace,
        k: int,
        others: Sequence[InterchangeRuns],
    ) -> Subspace:
        seed = self.seed + k
        return search(
            fit,
            place,
            self.method,
            k,
            steps=self.steps,
            seed=seed,
            others=others,
            dictionary=self.dictionary,
        )

    def _others(self, name: str) -> list[InterchangeRuns]:
        """Return the pairs of the other variables with their answers without an exchange."""
        if not self.isolate:
            return []
        return [
            runs.answering(runs.plain.tolist()) for other, runs in self.fit.items() if other != name
        ]

    def _ranks(self, place: HeldPlace) -> list[int]:
        width = max(piece.width for piece in place.pieces)
        if self.method != "rotation":
            return [0]
        if self.ranks is not None:
            return sorted({min(k, width) for k in self.ranks})
        return [2**i for i in range(width.bit_length()) if 2**i <= max(1, width // 2)]

    def _isolated(self, name: str, place: HeldPlace, subspace: Subspace) -> float:
        stay = [
            runs.answers(place, subspace) == runs.plain
            for other, runs in self.judge.items()
            if other != name
        ]
        return float(np.concatenate(stay).mean()) if stay else float("nan")


def _error(share: float, runs: InterchangeRuns) -> float:
    n = len(runs.rows)
    return float(np.sqrt(max(share * (1 - share), 1 / n) / n))


def _parts(rows: Sequence[PlacedInterchange], seed: int) -> list[list[PlacedInterchange]]:
    """Part the pairs; all of a template, or all with one base prompt, are in one part."""
    several = len({row.template for row in rows}) >= LEAST_TEMPLATES
    labels = [row.template if several else row.base for row in rows]
    names = list(dict.fromkeys(labels))
    order = np.random.default_rng([seed, 85]).permutation(len(names))
    counts = np.array([labels.count(names[i]) for i in order])
    at = np.searchsorted(PARTS, (counts.cumsum() - counts / 2) / counts.sum())
    part_of = {names[i]: part for i, part in zip(order, at, strict=True)}
    return [
        [row for row, label in zip(rows, labels, strict=True) if part_of[label] == part]
        for part in range(len(PARTS) + 1)
    ]


def _exchanged(runs: InterchangeRuns, seed: int) -> InterchangeRuns:
    """Return the same pairs with answers exchanged between them."""
    order = np.random.default_rng([seed, 86]).permutation(len(runs.rows))
    return runs.answering([runs.rows[i].answer for i in order])


def _hits(answers: Int[np.ndarray, " pair"], runs: InterchangeRuns) -> Bool[np.ndarray, " pair"]:
    return answers == np.array([row.answer for row in runs.rows])


def _share(answers: Int[np.ndarray, " pair"], runs: InterchangeRuns) -> float:
    return float(_hits(answers, runs).mean())
