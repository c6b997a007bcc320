"""Verdicts on hypotheses about heads, and about tasks, on text that chose and fitted nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.core.columns import with_noun
from interp.core.errors import OptionError, PromptError
from interp.core.intervals import share_interval
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.statistics import RatioBootstrap, widened_quantiles
from interp.model.content import model_provenance
from interp.model.model_argument import one_model
from interp.model.precision import on_its_device
from interp.profiles.claim_effect import losses_by_pattern
from interp.profiles.claim_examples import counter_examples, picked_texts
from interp.profiles.claim_fit import ClaimFit, ClaimPage, ClaimPages, attention_on_entries
from interp.profiles.dealt import DealtDocuments
from interp.profiles.hypothesis import require_sense
from interp.profiles.hypothesis_forms import read_hypothesis, stated_hypothesis
from interp.profiles.judgement import DRAWS, PROBABILITIES, Number, ratio
from interp.profiles.ledger import QuestionLedger
from interp.profiles.predictions import prediction_of
from interp.profiles.rows_read import described_sites
from interp.profiles.run import next_document, wanted_heads
from interp.profiles.sampled import text_sample
from interp.profiles.sentence_reader import SentenceReader, at_one_distance
from interp.profiles.sources import SAMPLED
from interp.profiles.task_claim import PAIR, TaskClaim
from interp.profiles.task_verdict import judge_task
from interp.profiles.variable_claim import VariableClaim, judge_variable
from interp.profiles.verdict import Tested, shares_of

if TYPE_CHECKING:
    from interp.core.protocols import Progress

OF_LOSS = 16  # fresh documents on which the loss is measured
LEAST = 8  # fresh documents without which nothing can be told
WORDS = 256  # further documents, which tell names and frequent words
FOLDER = "results/ledgers"
LEFT, OTHERS = "share of what is left", "other heads of the layer, median"
OF_KIND = "attention of the queries of the kind"
PICKED = "active text picked"


@on_its_device
def judge(
    model: Any,
    hypothesis: Any,
    corpus: Any = None,
    *,
    head: str | None = None,
    reader: str | None = None,
    field: str = "text",
    n_documents: int = 64,
    n_queries: int | None = 16,
    max_length: int = 128,
    seed: int = 0,
    questions: str | os.PathLike = FOLDER,
    progress: Progress | None = None,
) -> ResultRows:
    """Judge a hypothesis about a head, or about a task, on text that chose and fitted nothing.

    A hypothesis about a head becomes a model of its pattern, with weights fitted on the first
    documents of the corpus. On fresh documents its reference is position alone, or even attention
    if it names the same keys whatever the tokens are. It holds if it explains more than .5 of what
    the reference leaves unexplained of the pattern off the sink, on average over documents, and
    holds in part if more than .1. It must also explain .1 more than two controls: itself read on
    the tokens of another document, and as many random keys for each query; and, if it is a
    sentence, more than one about something else that the same language model reads.

    A claim that heads, or a circuit, do a task is judged on fresh pairs of prompts of the task, by
    the same words: the share of the gap between clean and corrupted prompts that is lost once the
    outputs of the heads are replaced by those on the corrupted prompt, or that is kept with the
    circuit alone. The control is as many random other heads, or a random set of nodes. A claim
    that a subspace holds a variable, from a file of `find_variables`, is judged on fresh pairs: the
    share whose answer follows the variable when this subspace alone is exchanged. The controls are
    random subspaces of the same size, and the answers of other pairs.

    Every question is written into a ledger. Documents that judged it judge no later question about
    the model, and levels of tests follow LORD++, which controls the share of false verdicts among
    all questions.

    Args:
        model: a model, or anything that `interp.load` accepts.
        hypothesis: HEAD=RULE with a rule or detector by name, HEAD=FILE.py:FUNCTION, HEAD=FILE.toml
            with a list, HEAD=SENTENCE, or, with `head`, a function or a list of tables; all but a
            sentence may be limited to a kind of query, as in HEAD=RULE from names;
            HEAD+HEAD=task:TASK with a task of `interp circuit`, the file of a circuit, or
            FILE=task:TASK; PLACE=FILE with a file of `find_variables`.
        corpus: see `interp.profile`; of hypotheses about a head.
        head: the head, such as L5H4, if the hypothesis does not name it.
        reader: address of a language model (http://HOST/v1#NAME) that reads a sentence and names
            the keys that it expects; it sees the documents.
        field: field or column of the text, or of token ids.
        n_documents: number of fresh documents that judge, half as many fit; of a task, of pairs.
        n_queries: number of random queries read of each document; None: all.
        max_length: longest window of a document, in tokens.
        seed: seed of every random choice.
        questions: folder of the ledgers, in which earlier questions count.
        progress: called with the name of the step, the steps done and their number.

    Returns:
        A row per number, `score` with the interval `low` to `high` over documents that also holds
        the spread of the fit. Facts: `verdict`, the word; `question`, its number in the ledger;
        `levels` and `p` by word; `needed`, an estimate of the documents that would tell;
        `questions`, all that the ledger holds; `examples`, where hypothesis and head differ most;
        `without_gap`, the pairs on which the model does not do the task, which do not count.

    Raises:
        OptionError: the hypothesis is of no known form, raises, does not end, returns something
            else, reads tokens after the query, or names every key or none; the model does not do
            the task, or the circuit or the variable is of another; the ledger was changed.
        PromptError: the corpus cannot be read, or has too few distinct documents; or the task has
            too few pairs that did not judge before.
        LoadError: the language model does not answer, or its replies can hardly be read.
        UnknownName: there is no such head or rule.

    Reference: Ramdas et al. 2017 (arXiv 1710.00499), Waudby-Smith, Ramdas 2024 (arXiv 2010.09686).
    """
    stated = stated_hypothesis(hypothesis, head, readable=reader is not None)
    if n_documents < LEAST:
        raise OptionError(f"n_documents={n_documents} is too small; give at least {LEAST}")
    of_task = isinstance(stated, TaskClaim | VariableClaim)
    if of_task and corpus is not None:
        raise OptionError(f"{stated.asked} is judged on pairs of its task; leave out corpus=")
    loaded = one_model(model)
    provenance = model_provenance(loaded)
    books = QuestionLedger(Path(questions), {"model": str(provenance["content_hash"])})
    if of_task:
        asked = {"n": n_documents, "least": LEAST, "seed": seed}
        if isinstance(stated, VariableClaim):
            return judge_variable(loaded, stated, books, progress=progress, **asked)
        return judge_task(loaded, stated, books, progress=progress, **asked)
    language = None if reader is None else SentenceReader.at(reader, loaded)
    said = read_hypothesis(stated, loaded, reader=language)
    sites = described_sites(loaded)
    [(site, number)] = wanted_heads(loaded, sites, [said.head])
    size = {"n_queries": n_queries, "max_length": max_length, "seed": seed}
    with books.turn() as turn:
        written = corpus is None or (isinstance(corpus, str) and corpus == SAMPLED)
        used = sum(not key.startswith(PAIR) for key in turn.used)
        most = n_documents + n_documents // 2 + used + (0 if written else WORDS)
        size["n_documents"] = most
        sample = text_sample(loaded, sites, corpus, field, None, progress, most, **size)
        dealing, kind = (sample.windows, turn.used, n_documents), ""
        if said.at is None:
            dealt = DealtDocuments.of(*dealing)
        else:
            dealt = DealtDocuments.of_kind(said.at, loaded, *dealing, n_queries, seed)
            kind = f" with queries {said.at.limit}"
        if len(dealt.fresh) < LEAST:
            raise PromptError(
                f"{with_noun(len(dealt.fresh), 'fresh document')}{kind} left of"
                f" {len(sample.windows)} in {sample.facts['corpus']}: the others fit, or judged"
                f" one of the {with_noun(turn.number - 1, 'earlier question')} about"
                f" {loaded.name}; at least {LEAST} are needed: give more documents"
            )
        answer = _Answer.of(
            ClaimPages(loaded, site, dealt.reader(loaded), said, seed), dealt, number, progress
        )
        settled = answer.tested.settled(turn, said.asked, [x.content for x in dealt.fresh])
    facts = settled | {
        "metric": "explained",
        "probabilities": list(PROBABILITIES),
        "head": said.head,
        "reference": answer.reference,
        "fresh_left": dealt.left,
        "claimed": [entry.share for entry in said.entries],
        "at": answer.limited,
        "examples": counter_examples(loaded, answer.fit, answer.read, answer.judged, number),
    }
    provenance |= dict(
        sample.facts,
        corpus_hash=sample.hash,
        made_by="interp.profiles.judge",
        options=size | {"n_documents": n_documents},
    )
    if language is not None:
        provenance["reader"] = {
            "server": language.server,
            "replies": len(language.read),
            "unreadable": language.read.count(False),
        }
    numbers = answer.numbers(seed)
    return ResultRows(
        "Verdict",
        numbers.rows,
        ("number",),
        provenance,
        facts,
        why_no_per_prompt="a share is a ratio of sums over documents",
        arrays={"quantiles": np.array(numbers.quantiles)},
    )


@dataclass(frozen=True, eq=False)
class _Answer:
    """Measurements of one question, before they are put into words.

    Args:
        pages: reader of documents.
        dealt: the documents.
        fit: the row models.
        read: documents that judge, as they were read.
        nats: divergence of each of them from every row model, `[document, head]`.
        reference: row model that the hypothesis improves on.
        judged: row model of the hypothesis.
        controls: row models that should be worse.
        held: attention on the keys of its entries.
        tested: the tests.
    """

    pages: ClaimPages
    dealt: DealtDocuments
    fit: ClaimFit
    read: Sequence[ClaimPage]
    nats: Mapping[str, Float[np.ndarray, "document head"]]
    reference: str
    judged: str
    controls: tuple[str, ...]
    held: Mapping[str, np.ndarray]
    tested: Tested

    @classmethod
    def of(
        cls, pages: ClaimPages, dealt: DealtDocuments, head: int, progress: Progress | None
    ) -> _Answer:
        """Read the documents, fit the row models and test the hypothesis."""
        said, fits = pages.hypothesis, dealt.fits
        if pages.model.kind == "causal":
            for window in fits[:3]:
                other = next_document(fits, fits.index(window))
                require_sense(said, pages.reader, window.ids, other.ids, window.queries)
        read, n = [], len(fits) + len(dealt.fresh)
        for at, window in enumerate([*fits, *dealt.fresh]):
            fresh = dealt.fresh
            other = None if at < len(fits) else next_document(fresh, fresh.index(window))
            read.append(pages.page(window, other, at))
            if progress is not None:
                progress("documents", at + 1, n)
        fit, read = ClaimFit(read[: len(fits)], head, pages.seed), read[len(fits) :]
        held = attention_on_entries(said, read, head)
        every = [fit.nats(page) for page in read]
        nats = {name: np.stack([x[name] for x in every]) for name in every[0]}
        positional = reads_nothing = all(torch.equal(page.claim, page.other) for page in read)
        if said.reader is not None:  # decided on the documents of the fit
            masks = [page.claim[0].bool().numpy() for page in fit.pages]
            positional = at_one_distance(masks, [page.window.queries for page in fit.pages])
        reference = "even" if positional else "position"
        judged = "alone" if positional else "with_position"
        controls = ("random_alone" if positional else "random_keys",)
        if said.reader is not None:
            controls = (*controls, "other_sentence_alone" if positional else "other_sentence")
        if not reads_nothing:
            controls = (*controls, f"other_text_{judged}")
        own = {name: values[:, head] for name, values in nats.items()}
        tested = Tested.of(own, reference, judged, controls)
        return cls(pages, dealt, fit, read, nats, reference, judged, controls, held, tested)

    @cached_property
    def limited(self) -> dict[str, Any] | None:
        """The kind of query that alone judges, and how many of the corpus are; None if all are."""
        kind = self.pages.hypothesis.at
        return None if kind is None else self.dealt.counted(kind, self.pages.reader)

    def numbers(self, seed: int) -> _Numbers:
        """Return the numbers of the verdict, with their intervals."""
        head, site, said = self.fit.head, self.pages.site, self.pages.hypothesis
        nats = {name: values[:, head] for name, values in self.nats.items()}
        refitted = [self.fit.refitted(page) for page in self.read]
        spread = {name: np.stack([x[name] for x in refitted]) for name in refitted[0]}
        numbers = _Numbers(len(self.read), seed, [], [])
        numbers.mean_share(LEFT, nats, self.reference, self.judged, spread)
        for name in ("position", self.judged, *self.controls):
            numbers.share(name, nats, "even", name, spread)
        weight = np.stack([page.rows.weight[head].sum().item() for page in self.read])
        if self.limited is not None:  # of texts without the kind, none
            part, whole = np.array(
                [(x.of_kind[head].item(), x.whole[head].item()) for x in self.read]
            ).T
            numbers.ratio(OF_KIND, part * self.limited["room"], whole)
        for at, entry in enumerate(said.entries):
            numbers.ratio(f"attention: {entry.name}", self.held["held"][:, at], weight)
            numbers.ratio(f"even attention: {entry.name}", self.held["even"][:, at], weight)
        if said.reader is not None:
            numbers.counted(
                PICKED, *picked_texts(said.reader, said.sentence, self.read, head, seed)
            )
        others = [h for h in range(site.n_heads) if h != head]
        if others:
            names = (self.reference, self.judged)
            under, best = (self.nats[name][:, others].sum(0) for name in names)
            shares = 1 - best[under > 0] / under[under > 0]
            numbers.alone(OTHERS, float(np.median(shares)) if len(shares) else np.nan)
        model = self.pages.model
        if model.kind == "causal" and not isinstance(prediction_of(model, [site], seed), str):
            few = self.dealt.fresh[:OF_LOSS]
            own, even, described = losses_by_pattern(self.pages, self.fit, self.judged, few).T
            of_loss = _Numbers(len(few), seed, numbers.rows, numbers.quantiles)
            every = said.at is None
            n = np.array([len(x.ids) - 1 if every else len(x.queries) for x in few], float)
            unit = "nats/token" if every else "nats/query"
            of_loss.ratio("loss without the pattern", even - own, n, unit)
            of_loss.ratio("causal share", even - described, even - own)
        return numbers


class _Numbers:
    """Rows of numbers with intervals over documents and fits.

    Attributes:
        rows: the rows.
        quantiles: of each number, at `PROBABILITIES`.
    """

    def __init__(self, n: int, seed: int, rows: list[dict[str, Any]], quantiles: list[Any]) -> None:
        self.n, self.rows, self.quantiles, self.seed = n, rows, quantiles, seed
        self.draws = RatioBootstrap(n, draws=DRAWS, seed=seed)

    def share(self, name: str, nats: Any, reference: str, judged: str, spread: Any) -> None:
        """Add the share of a reference's divergence that a row model explains, over all rows."""
        under, refits = nats[reference], None
        if judged in spread and under.sum() > 0:
            below = spread[reference] if reference in spread else under[:, None]
            refits = 1 - spread[judged].sum(0) / below.sum(0)
        self._add(name, ratio(self.draws, under - nats[judged], under), refits)

    def mean_share(self, name: str, nats: Any, reference: str, judged: str, spread: Any) -> None:
        """Add the mean over documents of the share that the verdict is about."""
        shares = shares_of(nats[reference], nats[judged])
        known = np.isfinite(shares)
        if not known.any():
            return self.alone(name, np.nan)
        n = int(known.sum())
        draws = RatioBootstrap(n, draws=DRAWS, seed=self.seed)
        below = spread[reference] if reference in spread else nats[reference][:, None]
        refits = shares_of(below, spread[judged])[known].mean(0)
        return self._add(name, ratio(draws, shares[known], np.ones(n)), refits, n)

    def ratio(self, name: str, part: Any, under: Any, unit: str = "share") -> None:
        """Add a ratio of sums over documents."""
        self._add(name, ratio(self.draws, part, under), unit=unit)

    def counted(self, name: str, hits: int, n: int) -> None:
        """Add a share of independent cases, with Wilson's interval."""
        ends = [share_interval(hits, n, abs(1 - 2 * p))[p > 0.5] for p in PROBABILITIES]
        number = Number(hits / n if n else np.nan, tuple(ends))
        self._add(name, number, n=n)

    def alone(self, name: str, value: float) -> None:
        """Add a number without an interval."""
        self._add(name, Number(value, (np.nan,) * len(PROBABILITIES)))

    def _add(
        self,
        name: str,
        number: Number,
        refits: Float[np.ndarray, " draw"] | None = None,
        n: int | None = None,
        unit: str = "share",
    ) -> None:
        """Add a number, whose interval is widened by the spread of refits, as variances add up."""
        apart = np.array(number.quantiles) - number.value
        of_documents = np.diff(apart[[PROBABILITIES.index(p) for p in (0.16, 0.84)]])
        if refits is not None and of_documents > 0:
            of_fits = np.diff(widened_quantiles(refits, (0.16, 0.84), len(refits)))
            apart *= np.hypot(1, of_fits / of_documents)
        ends = Number(number.value, tuple((number.value + apart).tolist()))
        self.quantiles.append(ends.quantiles)
        row = {"number": name, "score": ends.value, "low": ends.low, "high": ends.high}
        self.rows.append(row | {"n": self.n if n is None else n, "unit": unit})


present(
    "Verdict",
    summary="interp.report.printed.hypothesis:hypothesis_summary",
    first_line="interp.report.printed.hypothesis:hypothesis_line",
    page="interp.report.printed.hypothesis:hypothesis_page",
    text="interp.report.printed.hypothesis:hypothesis_text",
)
