"""Attention on the targets of a category, beside their share and beside the labels of other texts.

A query is a token of a word. Of the tokens of other words that it sees, some are eligible and some
of these are targets. Its value is the attention on the targets, minus the share of targets among
the eligible tokens times the attention on the eligible tokens: 0 for uniform attention, and for
attention on tokens of no word (special tokens, white space). Queries that see no target, or no
other eligible token, do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.heads.engine import attention_statistics_of
from interp.heads.scoring import choose_engine
from interp.heads.trials import Lab, Trials
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.kernel_call import as_attention
from interp.syntax.categories._texts import SHARED, Codes, Tokenized
from interp_kernels.reductions import Mass, Targets

if TYPE_CHECKING:
    from interp.model.model import Model

DRAWS = 4  # labellings of the null
BATCH = 16  # texts per forward pass
_KEPT = 2**28  # largest number of bytes of answers of predicates that are kept
NULL = "labels of other texts at the same positions"


class Remembered:
    """A predicate whose answers about the tokens of a batch are kept, as every layer asks again."""

    def __init__(self, predicate: Callable[[Any, Any, Any], Any]) -> None:
        self.predicate, self.answers, self.n_bytes = predicate, dict[Any, Tensor](), 0

    def __call__(self, query: Any, key: Any, tokens: Any) -> Any:
        """Return the predicate's answer; kernels that trace it get it anew."""
        if not isinstance(tokens, Tensor) or tokens.device.type != "cpu":
            return self.predicate(query, key, tokens)
        at = tuple((len(x.flatten()), int(x.flatten()[0])) for x in (query, key))
        known = (*at, tokens.as_subclass(Tensor).numpy().tobytes())
        if known not in self.answers:
            answer = self.predicate(query, key, tokens)
            if self.n_bytes + answer.numel() > _KEPT:
                return answer
            self.answers[known], self.n_bytes = answer, self.n_bytes + answer.numel()
        return self.answers[known]

    def forget(self) -> None:
        """Drop the answers of the last batch."""
        self.answers.clear()
        self.n_bytes = 0


@dataclass(frozen=True, eq=False)
class Category:
    """One question: the codes of the tokens, and the predicates that read them.

    Args:
        name: name in messages.
        codes: codes of the tokens of every text.
        target: predicate `(query, key, tokens)` of the targets, where tokens are the codes.
        eligible: predicate of the tokens among which the targets are counted.
        words: the word of every token, where the predicates read it: their tokens are then twice
            the word, plus 1 for tokens with a code.
    """

    name: str
    codes: list[Codes]
    target: Callable[[Any, Any, Any], Any]
    eligible: Callable[[Any, Any, Any], Any]
    words: list[Codes] | None = None

    def read(self, codes: list[Codes]) -> list[Codes]:
        """Return what the predicates read, from the codes of this or of another labelling."""
        if self.words is None:
            return codes
        return [
            np.where(word < 0, word, 2 * word + (code > 0))
            for word, code in zip(self.words, codes, strict=True)
        ]

    @property
    def size(self) -> int:
        """Number of tokens with a code."""
        return sum(int((x > 0).sum()) for x in self.codes)


def of_keys(name: str, codes: list[Codes], words: list[Codes]) -> Category:
    """Return the category of keys with a code, among the tokens of all other words.

    Pieces of one word are not other words: a head that attends from the end of a noun to its
    beginning does not attend to a noun.
    """

    def eligible(query: Any, key: Any, tokens: Any) -> Any:
        known = (tokens[query] >= 0) & (tokens[key] >= 0)
        return known & (tokens[query] // 2 != tokens[key] // 2)

    def target(query: Any, key: Any, tokens: Any) -> Any:
        return eligible(query, key, tokens) & (tokens[key] % 2 == 1)

    return Category(name, codes, target, eligible, words)


def of_links(name: str, codes: list[Codes]) -> Category:
    """Return the keys in other spans of the query's group, among those in any other span."""

    def eligible(query: Any, key: Any, tokens: Any) -> Any:
        coded = (tokens[query] > 0) & (tokens[key] > 0)
        return coded & (tokens[query] // SHARED != tokens[key] // SHARED)

    def target(query: Any, key: Any, tokens: Any) -> Any:
        return eligible(query, key, tokens) & (tokens[query] % SHARED == tokens[key] % SHARED)

    return Category(name, codes, target, eligible)


def of_brackets(name: str, codes: list[Codes]) -> Category:
    """Return the opening bracket of a closing one, among all opening brackets that it sees."""

    def eligible(query: Any, key: Any, tokens: Any) -> Any:
        opening = (tokens[key] > 0) & (tokens[key] % 4 == 1)
        return opening & (tokens[query] > 0) & (tokens[query] % 4 == 2)

    def target(query: Any, key: Any, tokens: Any) -> Any:
        return eligible(query, key, tokens) & (tokens[query] // 4 == tokens[key] // 4)

    return Category(name, codes, target, eligible)


@dataclass(frozen=True, eq=False)
class CategoryValues:
    """Values of a category: per attention `[text, head]`, NaN where no query of a text counts.

    Args:
        values: attention above the share.
        null: the same for the labels of other texts, the mean over the labellings.
        mass: attention on the targets, without the share.
        share: share of targets among eligible tokens, the mean over the queries of each text.
    """

    values: Mapping[Site, Float[Tensor, "text head"]]
    null: Mapping[Site, Float[Tensor, "text head"]]
    mass: Mapping[Site, Float[Tensor, "text head"]]
    share: float


def measured_categories(
    model: Model,
    at: Tokenized,
    categories: Sequence[Category],
    *,
    seed: int,
    draws: int = DRAWS,
    engine: str = "auto",
    batch_size: int = BATCH,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> list[CategoryValues]:
    """Measure categories on every self-attention, in one forward pass per batch of texts."""
    for category in categories:
        if category.size == 0:
            raise PromptError(
                f"no token of the {len(at.ids)} texts is in the category {category.name}; check "
                f"the labels of the file, or raise `length`"
            )
    prompts = Prompts(at.ids, "labelled texts")
    prompts.check(model)
    engine = choose_engine(model, prompts, batch_size, engine)
    rng = np.random.default_rng(seed)
    documents = [t.document or f"text {i}" for i, t in enumerate(at.texts)]
    versions = [
        [c.read(c.codes), *(c.read(_elsewhere(c.codes, documents, rng)) for _ in range(draws))]
        for c in categories
    ]
    kept = [(Remembered(c.target), Remembered(c.eligible)) for c in categories]
    asked = [
        replace(c, target=target, eligible=eligible)
        for c, (target, eligible) in zip(categories, kept, strict=True)
    ]
    by_category: list[list[dict[Site, list[Tensor]]]] = [[{} for _ in v] for v in versions]
    for start in range(0, len(prompts), batch_size):
        which = range(start, min(start + batch_size, len(prompts)))
        batch = prompts.part(which)

        def visit(site: Site, call: Call, real: Tensor, which: range = which) -> None:
            model.require_finite(call, site)
            if site.stack == "cross":
                return
            for category, codes, into in zip(asked, versions, by_category, strict=True):
                for version, by_site in zip(codes, into, strict=True):
                    mine = Prompts(tuple(tuple(version[i].tolist()) for i in which))
                    rows = _per_text(call, real, mine, category, engine)
                    by_site.setdefault(site, []).append(rows)

        model.read(batch, visit, last=1, streamed=engine != "stored")
        for predicate in chain.from_iterable(kept):
            predicate.forget()
        advance(which.stop, len(prompts))
    return [_joined(each) for each in by_category]


def _per_text(
    call: Call, real: Tensor, codes: Prompts, category: Category, engine: str
) -> Float[Tensor, "text head 3"]:
    """Return the mean value, the mean mass and the mean share of every text and head."""
    tokens = codes.padded()[0].to(call.z.device)
    attention = as_attention(call, real, tokens)
    wanted = (("target", category.target), ("eligible", category.eligible))
    asked = [kind(f"{name} {kind.__name__}", p) for name, p in wanted for kind in (Mass, Targets)]
    values = attention_statistics_of(call, attention, asked, engine)
    mass, number, around, among = (values[x.name].double() for x in asked)
    counts = real[:, None, :] & (number > 0) & (number < among)
    share = number / among.clamp_min(1)
    statistics = [mass - share * around, mass, share.expand_as(mass)]
    rows = torch.stack([torch.where(counts, x, torch.nan).nanmean(-1) for x in statistics], -1)
    return rows.cpu()


def _joined(found: Sequence[Mapping[Site, list[Tensor]]]) -> CategoryValues:
    measured, *others = ({site: torch.cat(x) for site, x in each.items()} for each in found)
    values = {site: x[..., 0] for site, x in measured.items()}
    null = (
        {site: torch.stack([o[site][..., 0] for o in others]).nanmean(0) for site in measured}
        if others
        else {}
    )
    mass = {site: x[..., 1] for site, x in measured.items()}
    share = torch.stack([x[..., 2].nanmean() for x in measured.values()]).nanmean()
    return CategoryValues(values, null, mass, float(share))


def _elsewhere(
    codes: Sequence[Codes], documents: Sequence[str], rng: np.random.Generator
) -> list[Codes]:
    """Return for each text the codes that other documents have at the same positions.

    They are those of one other text, drawn at random; where it ends, those of the next one that
    is longer, and after the longest its own again from its beginning. Tokens of no word stay tokens
    of no word.
    """
    out = []
    for i, text_codes in enumerate(codes):
        drawn = longest = np.zeros(0, dtype=np.int64)
        for j in rng.permutation(len(codes)):
            if documents[j] != documents[i] and len(codes[j]) > len(drawn):
                drawn = np.r_[drawn, codes[j][len(drawn) :]]
                longest = codes[j]
        drawn = np.r_[drawn, np.resize(longest, max(len(text_codes) - len(drawn), 0))][
            : len(text_codes)
        ]
        out.append(np.where(text_codes < 0, text_codes, np.maximum(drawn, 0)))
    return out


def trials_of(
    model: Model,
    lab: Lab,
    at: Tokenized,
    category: Category,
    name: str,
) -> Trials:
    """Return a category's values as the trials of an experiment, one per text."""
    [measured] = measured_categories(
        model,
        at,
        [category],
        seed=lab.seed,
        draws=DRAWS if lab.notes else 0,
        advance=lambda done, total: lab.progress(name, done, total),
    )
    if all(bool(x.isnan().all()) for x in measured.values.values()):
        raise PromptError(
            f"no query of the {len(at.ids)} texts sees a target of {category.name} beside another "
            f"token to compare it with; raise `length` or give other texts"
        )
    words = sum(int((x >= 0).sum()) for x in category.codes)
    notes = {
        "texts": len(at.ids),
        "tokens of the category": f"{category.size} of {words} tokens of words",
        "share of targets": f"{measured.share:.4f} of the eligible tokens that a query sees",
        "tokens of no word": "neither queries nor counted in shares",
    }
    if at.n_cut:
        notes["cut"] = f"{at.n_cut} texts, of which only the first `length` tokens are read"
    clusters = tuple(t.document or f"text {i}" for i, t in enumerate(at.texts))
    return Trials(measured.values, measured.null or None, NULL, notes, clusters=clusters)
