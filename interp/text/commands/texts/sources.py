"""Command `interp texts sources`: the sentences of a document that an answer rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from interp.bundled import usual_task
from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import FROM_2, Spelling
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model
    from interp.text.chains import Chain

WAYS = ("attention", "heads", "gradient", "ablations", "leave_one_out")


def _check(run: Run) -> None:
    values = run.values
    if values["file"] is not None and not values["answer"]:
        raise OptionError("give the answer whose sources are sought with --answer")


def _chain(run: Run) -> Chain | None:
    from interp.core.prompt_file import prompt_text
    from interp.text.chains import Chain

    file = run.values["file"]
    if file is None:
        return None
    about = {name: run.values[name] for name in ("question", "answer")}
    chain = Chain.of_text(run.model, prompt_text(file), name=file.stem, **about)
    chain.fits(run.model)
    return chain


@command(
    also={
        "interp.text.context.judge:judge_sources": (
            "batch_size",
            "seed",
        )
    },
    inputs={"chain": Input(_chain, ("file", "question", "answer"))},
    options={
        "file": Spelling(type=PromptFile(), help="File of the document."),
        "question": Spelling(default="", metavar="TEXT", help="Text between document and answer."),
        "answer": Spelling(
            default="", metavar="TEXT", help="The answer; often it begins with a space."
        ),
        "methods": Spelling(type=click.Choice(WAYS), metavar="NAME", default=(), read=tuple),
        "n_documents": Spelling(type=FROM_2),
    },
    text="interp.report.printed:nothing",
    check=_check,
    example="interp texts sources MODEL --file notes.txt --question ' Who?' --answer ' Tom'",
)
def sources(
    run: Run,
    model: Model,
    chain: Chain | None = None,
    *,
    methods: Sequence[str] = (),
    n_documents: int = 12,
    top: int = 5,
    progress: Any = None,
    **options: Any,
) -> ResultRows:
    """Score the sentences of a document (FILE) by how much the answer of MODEL rests on them.

    First every way is judged on documents with known sources: precision at k, and the calibration
    of the confidence that is then stated for FILE. Without a file, only this is done. For
    bundled:stories the documents tell who has a thing.

    Args:
        chain: the document.
        methods: method that scores sentences. Repeatable; all by default.
        n_documents: number of documents with known sources; half of them are held out.
        top: number of sentences to print per method.
    """
    from interp.report.printed.texts import answer_text, judgement_text
    from interp.text.context import answer_sources, judge_sources

    wanted = methods or WAYS
    documents = _known(run, n_documents, options["seed"])
    judged = judge_sources(model, documents, methods=wanted, progress=progress, **options)
    run.say(judgement_text(judged))
    run.write(judged, "judged.json", "judged.csv", "judged.html")
    if chain is None:
        return judged
    scores = answer_sources(model, chain, methods=wanted, judged=judged, **options)
    run.say(answer_text(scores, top))
    run.write(scores, "sources.json", "sources.csv", "sources.html")
    return scores


def _known(run: Run, n_documents: int, seed: int) -> list[Chain]:
    """Return documents with known sources, of English sentences where the model reads them."""
    from interp.circuits.tasks import make_contrast
    from interp.core.errors import PromptError
    from interp.text.chains import linked_chains
    from interp.text.context import sentence_documents
    from interp.text.context.documents import told_documents

    if (task := usual_task(run.sources[0])) is not None:
        run.voice.note(f"known documents: {n_documents} of {task}")
        pairs = make_contrast(run.model, task, n=n_documents, seed=seed)
        places = [roles["receiver"] for roles in pairs.roles]
        return told_documents(run.model, pairs.clean.ids, places, seed=seed)
    n_sentences = 10
    shared = {"n_sentences": n_sentences, "seed": seed}
    try:
        documents = sentence_documents(run.model, n_documents=n_documents, **shared)
        run.voice.note(f"known documents: {n_documents} of {n_sentences} English sentences")
        return documents
    except PromptError:
        run.voice.note(
            f"known documents: {n_documents} of {n_sentences} sentences of random tokens"
        )
    return linked_chains(
        run.model,
        n_chains=n_documents,
        length=6,
        anchors=1,
        links=3,
        **shared,
    )
