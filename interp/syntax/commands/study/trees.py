"""Command `interp study trees`: dependency trees from attention heads, with baselines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.vocabulary import FROM_2, Spelling
from interp.cli.wrapping import print_rows
from interp.cli.written import as_given
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.result_folder import kept_folder

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.syntax.result import TreeScores

PATH = click.Path(path_type=Path)


def _check(run: Run) -> None:
    """Read the files before any model is loaded."""
    from interp.core.resources import folder

    values, n = run.values, run.values["n"]
    if values["heads"] is not None and values["pairs"] is None:
        raise OptionError("--heads selects the heads that --set pairs ablates; give the pairs")
    values["treebank"] = values["treebank"] or folder("data") / "treebank.conllu"
    banks = [name for name in ("treebank", "train") if values[name] is not None]
    for path in (values[name] for name in banks):
        if not path.is_file():
            raise OptionError(f"{path} is not a file; give a treebank in CoNLL-U")
    from interp.syntax.conllu import read_conllu
    from interp.syntax.pairs import read_pairs

    for name in banks:
        path = values[name]
        bank = read_conllu(path, on_error=values["on_error"])
        values[name] = bank if n is None else bank.first(n)
        for note in values[name].notes:
            run.voice.note(f"{bank.name}: {note}")
    if values["pairs"] is not None:
        values["pairs"] = read_pairs(values["pairs"], n=n)


def _write(run: Run) -> None:
    from interp.report.trees_folder import trees_document, write_trees

    scores = [one for _, [one] in run.results]
    checks = run.values["checks"]
    if run.form == "json":
        print_rows(trees_document(scores, checks))
    if run.out is None:
        return
    stored = kept_folder(run.out)
    files, hidden = write_trees(scores, checks, run.out, stored, command=as_given())
    run.voice.note(f"{run.out}: {', '.join(files)}")
    if hidden > 0:
        run.voice.note(
            f"{hidden} more results of these models, with other settings, are stored in {stored}; "
            "each model is shown with its latest settings"
        )


@command(
    over="models",
    inputs={
        "treebank": Input(lambda run: run.values["treebank"], ("treebank", "n", "on_error")),
        "train": Input(lambda run: run.values["train"], ("train",)),
        "pairs": Input(lambda run: run.values["pairs"], ("pairs",)),
    },
    options={
        "treebank": Spelling(
            ("--file",),
            PATH,
            "FILE",
            "Treebank file in CoNLL-U; by default the small one that comes with interp.",
            default=None,
        ),
        "n": Spelling(type=FROM_2, help="Use the first N sentences of each file; all by default."),
        "on_error": Spelling(
            type=click.Choice(["refuse", "skip"]),
            default="refuse",
            help="Handling of errors in a treebank: stop, or skip the sentence and count it.",
        ),
        "train": Spelling(
            type=PATH,
            metavar="FILE",
            help="Another treebank, used to choose heads, offsets and ensembles; by default half "
            "of that of --file, and numbers are from the other half.",
        ),
        "pairs": Spelling(
            type=PATH,
            metavar="FILE",
            help="Minimal pairs (JSONL with sentence_good and sentence_bad, as in BLiMP): effect "
            "of ablating the heads above their baselines, beside random heads.",
        ),
        "heads": Spelling(help="With --set pairs: ablate these heads instead."),
    },
    loading=("config",),
    checked=False,
    out="document",
    check=_check,
    after=_write,
    text="interp.report.printed:nothing",
    help="With --out, trees.json, relations.csv, trees.csv and a page trees.html are written.",
    example="interp study trees bert-base-cased --file en.conllu -o results",
)
def trees(
    run: Run,
    model: Model,
    treebank: Any,
    train: Any = None,
    pairs: Any = None,
    *,
    heads: Any = None,
    stack: str | None = None,
    controls: bool = True,
    top: int = 12,
    seed: int = 0,
    progress: Any = None,
    resume: Any = None,
) -> Iterator[TreeScores]:
    """Find dependency relations and trees in the attention of each MODEL.

    For every relation the best head is chosen on one part of the treebank and evaluated on the
    other, beside the best fixed offset, random weights and shuffled words. Trees are compared with
    chains of adjacent words.

    Args:
        train: the treebank on which heads are chosen.
        pairs: minimal pairs.
        heads: the heads to ablate.
        stack: stack to use, such as encoder or decoder; all by default.
        controls: also run random weights and shuffled words, which takes twice as long.
        top: number of relations to print, ordered by the lower end of the interval of their
            difference from the baseline; relations with fewer than 10 dependents come last.
        seed: seed of random weights, orders and draws.
        resume: folder of finished models.
    """
    from interp.report.printed.syntax import minimal_pairs_text, trees_text
    from interp.syntax.attention import WordReading
    from interp.syntax.pairs import checked_pairs
    from interp.syntax.stored_searches import kept_trees

    scores, version = kept_trees(
        model,
        treebank,
        train,
        WordReading(),
        stack=stack,
        controls=controls,
        seed=seed,
        resume=resume,
        progress=passes(progress, model.name),
    )
    if version:
        run.voice.note(f"{model.name}: stored by an earlier run of interp {version}")
    run.say(trees_text(scores, top))
    yield scores  # stays if the pairs cannot be judged
    checks = run.values.setdefault("checks", {})
    if pairs is not None:
        checks[model.name] = checked_pairs(model, scores, pairs, heads, seed, progress)
        run.say(minimal_pairs_text(checks[model.name]))


def passes(progress: Progress, model: str) -> Progress:
    """Return progress over sentences, separate from the bar of metrics."""

    def of_sentences(what: str, done: int, total: int) -> None:
        progress("sentences" + what.removeprefix(model), done, total)

    return of_sentences
