"""Search for dependency trees of one model: choose on some sentences, evaluate on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import PromptError
from interp.core.protocols import Progress
from interp.core.statistics import RatioBootstrap
from interp.model.model_argument import takes_model
from interp.syntax.attention import WordAttention, WordReading, word_attention
from interp.syntax.building import (
    FOUND_ROOT,
    GOLD_ROOT,
    JOINED,
    Scorer,
    chain,
    choose_directed,
    choose_joined,
    make_trees,
    tree,
    uuas_by_head,
    words_that_count,
)
from interp.syntax.gold import Gold, directed, hits_of
from interp.syntax.probe import fit_probe
from interp.syntax.relations import relations
from interp.syntax.result import SPANNING, Drawn, Trees, TreeScores
from interp.syntax.treebank import Treebank

if TYPE_CHECKING:
    from interp.model.model import Model

DRAWN = 12  # number of sentences stored for drawing
_LONGEST = 24  # maximum words of a sentence that is drawn


@takes_model
def dependency_trees(
    model: Model,
    treebank: Treebank,
    *,
    train: Treebank | None = None,
    reading: WordReading | None = None,
    stack: str | None = None,
    controls: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> TreeScores:
    """Find the heads that link the words of each relation, and trees from their attention.

    Args:
        model: the model.
        treebank: the evaluation sentences. Without `train`, its first half chooses heads and its
            second half evaluates them.
        train: the sentences used to choose heads, directions, fixed offsets, ensembles and the
            probe.
        reading: how pieces are joined to words.
        stack: the stack to use; by default all but cross attention.
        controls: also run a random-init model, and the model on shuffled words.
        seed: seed of the controls and the bootstrap.
        progress: see `Progress`.

    Words are those of the treebank, roots are not dependents, relations have no subtypes.
    References: Clark et al. 2019 (arXiv 1906.04341), Htut et al. 2019 (arXiv 1911.12246),
    Limisiewicz et al. 2020 (arXiv 2004.14620).

    Raises:
        PromptError: there is no fast tokenizer, too few sentences, or none that can be read.
        OptionError: the model does not have the stack.

    Unit: share of dependents, share of edges (UUAS, UAS)

    Cost: One forward pass per sentence, and two more for the controls.

    Null: random weights; shuffled words; best fixed distance; adjacent words.

    Not for: few sentences, or showing that the model uses a relation: `check_pairs` tests that.

    Reference: Clark et al. 2019 (arXiv 1906.04341); Htut et al. 2019 (arXiv 1911.12246);
    Limisiewicz et al. 2020 (arXiv 2004.14620)
    """
    from interp.model.random_weights import random_init

    reading = reading or WordReading()
    halved = train is None
    chooses, reports = (
        (treebank.sentences, treebank.sentences)
        if train is None
        else (train.sentences, treebank.sentences)
    )
    if halved:
        if len(treebank) < 2:
            raise PromptError(
                f"{treebank.name} has {len(treebank)} sentence; heads are chosen on some and "
                f"evaluated on others, so give two or more, or a second file"
            )
        chooses, reports = chooses[: len(chooses) // 2], reports[len(reports) // 2 :]
    options = {"stack": stack, "progress": progress}
    one = word_attention(model, chooses, reading, **options)
    two = word_attention(model, reports, reading, **options)
    gold = Gold.of(one.sentences), Gold.of(two.sentences)
    hits = hits_of(one, gold[0]), hits_of(two, gold[1])
    random = shuffled = random_pair = None
    if controls:
        other = replace_name(random_init(model, seed), f"{model.name}, random weights")
        random_pair = tuple(
            word_attention(other, part, reading, **options) for part in (chooses, reports)
        )
        random = tuple(hits_of(a, g) for a, g in zip(random_pair, gold, strict=True))
        mixed = word_attention(model, reports, replace(reading, shuffled=seed), **options)
        two_mixed = _same(mixed, two)
        shuffled = None if two_mixed is None else hits_of(two_mixed, gold[1])
    scored_relations = relations(one, two, gold, hits, random=random, shuffled=shuffled, seed=seed)  # type: ignore[arg-type]
    trees, chosen = _trees(one, two, random_pair, seed)
    return TreeScores(
        model=model.name,
        relations=tuple(scored_relations),
        trees=tuple(trees),
        by_head=_grid(one, uuas_by_head(one, words_that_count(one.sentences, True))),
        drawn=_drawn(two, chosen),
        counts=_counts(one, two),
        notes=_notes(model, treebank, train, reading, halved, controls, shuffled is not None),
        provenance=_provenance(model, treebank, train, reading, stack, seed),
    )


def replace_name(model: Model, name: str) -> Model:
    """Return the model under another name, for progress."""
    return replace(model, name=name)


def _same(mixed: WordAttention, two: WordAttention) -> WordAttention | None:
    """Return the shuffled sentences, if the same ones could be read."""
    return mixed if mixed.sentences == two.sentences else None


def _trees(
    one: WordAttention,
    two: WordAttention,
    random: Sequence[WordAttention] | None,
    seed: int,
) -> tuple[list[Trees], tuple[str, Scorer]]:
    """Make trees by every method, with and without punctuation; return the best without probe."""
    boot = RatioBootstrap(len(two), seed=seed)
    probe = fit_probe(one, seed=seed)
    out: list[Trees] = []
    drawn: tuple[str, Scorer] | None = None
    for punct in (True, False):
        chooses, reports = (
            words_that_count(one.sentences, punct),
            words_that_count(two.sentences, punct),
        )
        uuas = uuas_by_head(one, chooses)
        head = int(uuas.argmax())
        joined = choose_joined(one, chooses, uuas)
        arrow, direction = choose_directed(one, chooses)

        def single(at: int, head: int = head) -> np.ndarray:
            return two.values[at][head]

        def mean(at: int, joined: list[int] = joined) -> np.ndarray:
            return two.values[at][joined].mean(0)

        def pointing(at: int, arrow: int = arrow, direction: str = direction) -> np.ndarray:
            return directed(two.values[at][arrow], direction)

        def probed(at: int) -> np.ndarray:
            return probe.score(two.values[at])

        drawn = drawn or (JOINED if len(joined) > 1 else SPANNING, mean)
        ways: list[tuple[str, str, Scorer, list[int], str]] = [
            (SPANNING, SPANNING, single, [head], "both"),
            (JOINED, JOINED, mean, joined, "both"),
            (GOLD_ROOT, GOLD_ROOT, pointing, [arrow], direction),
            (FOUND_ROOT, FOUND_ROOT, pointing, [arrow], direction),
            ("linear probe, spanning tree", SPANNING, probed, [], "both"),
            ("linear probe, gold root", GOLD_ROOT, probed, [], "row and column"),
            ("linear probe, predicted root", FOUND_ROOT, probed, [], "row and column"),
        ]
        for name, method, scorer, heads, way in ways:
            named = [one.heads[h] for h in heads] or ["all heads"]
            out.append(make_trees(reports, scorer, method).trees(boot, name, named, way, punct))
        for name, step in (
            ("left-branching: head is the next word", 1),
            ("right-branching: head is the previous word", -1),
        ):
            branching = chain(reports, step)
            out.append(branching.trees(boot, name, (), "", punct, baseline=True))
        if random is not None:
            out.append(_of_random(random, punct, boot))
    assert drawn is not None
    return out, drawn


def _of_random(random: Sequence[WordAttention], punct: bool, boot: RatioBootstrap) -> Trees:
    """Make spanning trees of the best head of a model with random weights, chosen as for others."""
    one, two = random
    head = int(uuas_by_head(one, words_that_count(one.sentences, punct)).argmax())
    spanning = make_trees(
        words_that_count(two.sentences, punct), lambda at: two.values[at][head], SPANNING
    )
    name = "random weights, spanning tree"
    return spanning.trees(boot, name, [one.heads[head]], "both", punct, baseline=True)


def _grid(attention: WordAttention, values: np.ndarray) -> dict[str, list[list[float]]]:
    grids: dict[str, list[list[float]]] = {}
    for (stack, layer, head), value in zip(attention.places, values, strict=True):
        rows = grids.setdefault(stack, [])
        rows += [[] for _ in range(layer + 1 - len(rows))]
        row = rows[layer]
        row += [float("nan")] * (head + 1 - len(row))
        row[head] = float(value)
    return grids


def _drawn(two: WordAttention, chosen: tuple[str, Scorer]) -> tuple[Drawn, ...]:
    """Return the first sentences that fit a page, with the trees of joined heads."""
    method, scorer = chosen
    out = []
    for at, (sentence, part) in enumerate(
        zip(two.sentences, words_that_count(two.sentences, True), strict=True)
    ):
        if not 4 <= len(sentence) <= _LONGEST:
            continue
        parents, _ = tree(part, scorer(at), method)
        predicted = tuple((int(p), w) for w, p in enumerate(parents) if p >= 0)
        out.append(
            Drawn(
                sentence.words,
                sentence.heads,
                sentence.relations,
                predicted,
                False,
                sentence.sent_id,
                int(part.undirected(parents)),
            )
        )
        if len(out) == DRAWN:
            break
    return tuple(out)


def _counts(one: WordAttention, two: WordAttention) -> dict[str, int]:
    return {"train_sentences": len(one), "test_sentences": len(two)} | {
        f"{part}_{name}": int(n)
        for part, a in (("train", one), ("test", two))
        for name, n in a.counts.items()
        if name not in ("sentences", "read")
    }


def _notes(
    model: Model,
    treebank: Treebank,
    train: Treebank | None,
    reading: WordReading,
    halved: bool,
    controls: bool,
    shuffled: bool,
) -> tuple[str, ...]:
    out = [
        f"attention to a word is the {reading.to} over its pieces and attention from it the "
        f"{reading.attending} of their rows; special tokens are dropped without renormalising",
        "intervals are 95 % over sentences (bootstrap); p values are corrected by Holm over the"
        " relations",
    ]
    if halved:
        out.append(
            f"heads are chosen on the first half of {treebank.name} and evaluated on the second"
        )
    if model.kind == "causal":
        out.append(
            "each word attends only to earlier words: a head links a later word to an earlier "
            "one, whichever of them is the dependent"
        )
    if controls and not shuffled:
        out.append("no shuffled words: not all sentences could be read in another order")
    for bank in (treebank, train):
        out += [] if bank is None else [f"{bank.name}: {note}" for note in bank.notes]
    return tuple(out)


def _provenance(
    model: Model,
    treebank: Treebank,
    train: Treebank | None,
    reading: WordReading,
    stack: str | None,
    seed: int,
) -> dict[str, object]:
    from interp.model.content import model_provenance

    return model_provenance(model) | {
        "treebank": {"name": treebank.name, "sha256": treebank.content_hash, "n": len(treebank)},
        "train": None
        if train is None
        else {"name": train.name, "sha256": train.content_hash, "n": len(train)},
        "reading": asdict(reading),
        "stack": stack,
        "seed": seed,
        "made_by": "interp.syntax.dependency_trees",
    }
