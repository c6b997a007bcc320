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

from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.model.content import model_provenance
from interp.model.model_argument import one_model
from interp.model.precision import on_its_device
from interp.profiles.claim_effect import losses_by_pattern
from interp.profiles.claim_examples import counter_examples, picked_texts
from interp.profiles.claim_fit import ClaimFit, ClaimPage, ClaimPages, attention_on_entries
from interp.profiles.dealt import LEAST, DealtDocuments, deal_text
from interp.profiles.feature_verdict import FeatureAnswer
from interp.profiles.hypothesis import require_sense
from interp.profiles.hypothesis_forms import read_hypothesis, stated_hypothesis
from interp.profiles.judgement import PROBABILITIES
from interp.profiles.ledger import QuestionLedger
from interp.profiles.predictions import prediction_of
from interp.profiles.rows_read import described_sites
from interp.profiles.run import next_document, wanted_heads
from interp.profiles.sentence_reader import SentenceReader, at_one_distance
from interp.profiles.task_claim import TaskClaim
from interp.profiles.task_verdict import judge_task
from interp.profiles.variable_claim import VariableClaim, judge_variable
from interp.profiles.verdict import Tested
from interp.profiles.verdict_numbers import LEFT, OF_LOSS, VerdictNumbers

if TYPE_CHECKING:
    from interp.core.protocols import Progress

FOLDER = "results/ledgers"
OTHERS = "other heads of the layer, median"
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
    all questions. One document in five of a corpus of at least 160 is held back from the start:
    once the fresh ones are used up, these answer, without numbers.

    Args:
        model: a model, or anything that `interp.load` accepts.
        hypothesis: HEAD=RULE with a rule or detector by name, HEAD=FILE.py:FUNCTION, HEAD=FILE.toml
            with a list, HEAD=SENTENCE, or, with `head`, a function or a list of tables; all but a
            sentence may be limited to a kind of query, as in HEAD=RULE from names;
            HEAD+HEAD=task:TASK with a task of `interp circuit`, the file of a circuit, or
            FILE=task:TASK; PLACE=FILE with a file of `find_variables`; FOLDER:F12=KIND, or
            with a rule, function or list, for a feature of the dictionary in a folder.
        corpus: see `interp.profile`; of hypotheses about a head or a feature.
        head: the head, such as L5H4, or FOLDER:F12, if the hypothesis does not name it.
        reader: address of a language model (http://HOST/v1#NAME) that reads a sentence and names
            the keys that it expects; it sees the documents.
        field: field or column of the text, or of token ids.
        n_documents: number of fresh documents that judge, half as many fit; of a task, of pairs.
        n_queries: number of random queries read of each document, of a head; None: all.
        max_length: longest window of a document, in tokens.
        seed: seed of every random choice.
        questions: folder of the ledgers, in which earlier questions count.
        progress: called with the name of the step, the steps done and their number.

    Returns:
        A row per number, `score` with the interval `low` to `high` over documents that also holds
        the spread of the fit. Facts: `verdict`, the word; `question`, its number in the ledger;
        `levels` and `p` by word; `needed`, an estimate of the documents that would tell;
        `questions`, all that the ledger holds; `examples`, where hypothesis and head differ most;
        `without_gap`, the pairs on which the model does not do the task, which do not count. By
        held-back documents: the answer, also "not shown", and rows that count what is left.

    Raises:
        OptionError: the hypothesis is of no known form, raises, does not end, returns something
            else, reads tokens after the query, or names every key or none; the model does not do
            the task, or the circuit or the variable is of another; the ledger was changed.
        PromptError: the corpus cannot be read, or has too few distinct documents; or the task has
            too few pairs that did not judge before.
        LoadError: the language model does not answer, or its replies can hardly be read.
        UnknownName: there is no such head or rule.
        StoreError: the dictionary cannot be read.

    Reference: Ramdas et al. 2017 (arXiv 1710.00499), Waudby-Smith, Ramdas 2024 (arXiv 2010.09686),
    Dwork et al. 2015 (arXiv 1506.02629).
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
    sites, of_head = described_sites(loaded), None
    if said.feature is None:
        [of_head] = wanted_heads(loaded, sites, [said.head])
    size = {"n_queries": n_queries, "max_length": max_length, "seed": seed}
    with books.turn() as turn:
        sample, dealt = deal_text(
            loaded, sites, said.at, turn, n_documents, (corpus, field), size, progress
        )
        if of_head is None:
            answer = FeatureAnswer.of(loaded, said, dealt, seed, progress)
            said = answer.said
        else:
            pages = ClaimPages(loaded, of_head[0], dealt.reader(loaded), said, seed)
            answer = _Answer.of(pages, dealt, of_head[1], progress)
        asked = said.asked, [x.content for x in dealt.fresh]
        tested = answer.tested
        write = tested.answered if dealt.held_judge else tested.settled
        facts = write(turn, *asked) | {"metric": "explained", "head": said.head}
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
    if dealt.held_judge:
        left = turn.answers.after(facts["verdict"]).left
        rows = {
            "number": ["documents held back", "answers left", "positive answers left"],
            "score": [len(dealt.fresh), *left],
        }
        return ResultRows("Verdict", rows, ("number",), provenance, facts | {"unit": "count"})
    facts |= {
        "probabilities": list(PROBABILITIES),
        "reference": answer.reference,
        "fresh_left": dealt.left,
        "held_back": len(dealt.held),
        "claimed": [entry.share for entry in said.entries],
        "at": answer.limited,
        "examples": answer.examples(),
    }
    if isinstance(answer, FeatureAnswer):
        facts["feature"] = repr(answer.dictionary)
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

    def examples(self) -> list[dict[str, Any]]:
        """Return where hypothesis and head differ most."""
        return counter_examples(self.pages.model, self.fit, self.read, self.judged, self.fit.head)

    def numbers(self, seed: int) -> VerdictNumbers:
        """Return the numbers of the verdict, with their intervals."""
        head, site, said = self.fit.head, self.pages.site, self.pages.hypothesis
        nats = {name: values[:, head] for name, values in self.nats.items()}
        refitted = [self.fit.refitted(page) for page in self.read]
        spread = {name: np.stack([x[name] for x in refitted]) for name in refitted[0]}
        numbers = VerdictNumbers(len(self.read), seed, [], [])
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
            of_loss = VerdictNumbers(len(few), seed, numbers.rows, numbers.quantiles)
            every = said.at is None
            n = np.array([len(x.ids) - 1 if every else len(x.queries) for x in few], float)
            unit = "nats/token" if every else "nats/query"
            of_loss.ratio("loss without the pattern", even - own, n, unit)
            of_loss.ratio("causal share", even - described, even - own)
        return numbers


present(
    "Verdict",
    summary="interp.report.printed.hypothesis:hypothesis_summary",
    first_line="interp.report.printed.hypothesis:hypothesis_line",
    page="interp.report.printed.hypothesis:hypothesis_page",
    text="interp.report.printed.hypothesis:hypothesis_text",
)
