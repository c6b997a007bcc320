"""Chains of token ids in which it is known which sentence depends on which.

    sentence 2:  f f m v f f        the anchor: a marker m, its value v, among filler f
    sentence 9:  f f f m v f        depends on sentence 2: only there the value of m is found

A model that copies (induction) predicts v after the second m from the first one. Filler tokens
occur once each where the vocabulary allows; otherwise they repeat, and sentences depend on the
earlier copies of their filler as well, which makes the planted links harder to find.
"""

from __future__ import annotations

import numpy as np

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import bos_id, ordinary_ids
from interp.model.model import Model
from interp.model.model_argument import takes_model
from interp.text.chains.chain import Chain


@takes_model
def linked_chains(
    model: Model,
    *,
    n_chains: int = 4,
    n_sentences: int = 16,
    length: int = 8,
    anchors: int = 2,
    links: int = 6,
    copies: int = 1,
    filler: int | None = None,
    seed: int = 0,
) -> list[Chain]:
    """Make chains with planted dependencies between sentences, and an answer with known sources.

    Args:
        model: the model, whose vocabulary and beginning-of-sequence token are used.
        n_chains: number of chains.
        n_sentences: sentences per chain.
        length: tokens per sentence.
        anchors: sentences that later ones depend on.
        links: later sentences that depend on an anchor, divided evenly among the anchors.
        copies: sentences that hold the answer; with more than one, each alone suffices.
        filler: number of different filler tokens; by default as many as there are.
        seed: seed of tokens and places.

    Raises:
        OptionError: the sizes leave no room for the links.
        PromptError: the vocabulary is too small.
    """
    sizes = (n_chains, n_sentences, length, anchors, links, copies, 1 if filler is None else filler)
    each = -(-links // max(anchors, 1))
    if min(sizes) < 1 or 2 * each > length or anchors + links + copies + 1 > n_sentences:
        raise OptionError(
            f"n_chains={n_chains}, n_sentences={n_sentences}, length={length}, anchors={anchors}, "
            f"links={links}, copies={copies}: all must be at least 1, an anchor of {length} tokens "
            f"holds {length // 2} pairs, and anchors, links and copies need a sentence each and "
            "one more"
        )
    ids, bos = ordinary_ids(model), bos_id(model)
    ids = ids[ids != bos]
    special = 2 * (links + 1)
    if len(ids) < special + (filler or 1):
        raise PromptError(
            f"{model.name} has {len(ids)} tokens to draw from; {links} links need "
            f"{special + (filler or 1)}"
        )
    first = () if bos is None else (bos,)
    chains = []
    for number in range(n_chains):
        rng = np.random.default_rng((seed, number))
        drawn = rng.permutation(ids)
        pairs = drawn[:special].reshape(-1, 2)
        rest, size = drawn[special:][:filler], (n_sentences, length)
        text = rng.choice(rest, size, replace=len(rest) < n_sentences * length)
        half = np.arange(n_sentences // 2)
        early = np.sort(rng.choice(half, min(anchors, len(half)), replace=False))
        free = [i for i in range(n_sentences) if i not in early]
        late = [i for i in free if i > early.max()]
        if len(early) < anchors or len(late) < links or len(free) < links + copies:
            raise OptionError(
                f"{n_sentences} sentences do not hold {links} links after {anchors} anchors; give "
                "more sentences"
            )
        users = rng.choice(late, links, replace=False)
        left = [i for i in free if i not in users]
        if len(left) < copies:
            raise OptionError(
                f"{n_sentences} sentences leave {len(left)} for the answer; give more"
            )
        sources = np.sort(rng.choice(left, copies, replace=False))
        depends = []
        for at, user in enumerate(users):
            anchor, slot = int(early[at % anchors]), at // anchors
            text[anchor, 2 * slot : 2 * slot + 2] = pairs[at]
            place = rng.integers(length - 1)
            text[user, place : place + 2] = pairs[at]
            depends.append((int(user), anchor))
        for source in sources:
            place = rng.integers(length - 1)
            text[source, place : place + 2] = pairs[-1]
        start = len(first)
        chains.append(
            Chain(
                (*first, *map(int, text.ravel())),
                tuple((start + i * length, start + (i + 1) * length) for i in range(n_sentences)),
                tuple(" ".join(map(str, row)) for row in text),
                (int(pairs[-1, 0]),),
                (int(pairs[-1, 1]),),
                tuple(sorted(depends)),
                tuple(map(int, sources)),
                f"planted {number}",
            )
        )
    return chains
