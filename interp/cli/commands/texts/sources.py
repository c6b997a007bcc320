"""Command `interp texts sources`: the sentences of a document that an answer rests on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.between import aligned_columns, printed_rows, voice_of
from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.shared_options import file_option, model_argument
from interp.cli.traced_prompts import saved_in
from interp.cli.value_types import OUT_FOLDER
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.cli.progress import Voice
    from interp.heads.chains import Chain
    from interp.heads.context import AnswerSources, SourceJudgement
    from interp.model.model import Model

WAYS = ("attention", "heads", "gradient", "ablations", "leave_one_out")


@click.command(
    epilog="Example: interp texts sources MODEL --file notes.txt --question ' Who came?' "
    "--answer ' Tom'"
)
@model_argument
@file_option("File of the document.")
@click.option("--question", default="", metavar="TEXT", help="Text between document and answer.")
@click.option(
    "--answer", default="", metavar="TEXT", help="The answer; often it begins with a space."
)
@click.option(
    "--method",
    "ways",
    multiple=True,
    type=click.Choice(WAYS),
    help="Method that scores sentences. Repeatable; all by default.",
)
@click.option("--known", default="auto", show_default=True,
              type=click.Choice(["auto", "sentences", "ids", "none"]),
              help="Documents with known sources, on which heads are chosen and confidence is "
                   "calibrated: English sentences, random tokens, or none.")  # fmt: skip
@click.option("--documents", default=12, show_default=True, type=click.IntRange(2),
              help="Number of documents of --known; half of them are held out.")  # fmt: skip
@click.option("--sentences", default=10, show_default=True, type=click.IntRange(7),
              help="Number of sentences of each document of --known.")  # fmt: skip
@click.option("--n-heads", "k", type=click.IntRange(1), metavar="K",
              help="Number of heads of the method 'heads'; an eighth of all by "
                   "default.")  # fmt: skip
@click.option("--candidates", type=click.IntRange(1), metavar="N",
              help="Intervene only on the N sentences with most attention; or on all.")  # fmt: skip
@click.option("--ablations", default=64, show_default=True, type=click.IntRange(4), metavar="N",
              help="Number of random sets of hidden sentences.")  # fmt: skip
@click.option("--beyond", is_flag=True,
              help="Allow documents longer than the context that the config states.")  # fmt: skip
@click.option("--batch-size", default=4, show_default=True, type=click.IntRange(1),
              help="Number of interventions per forward pass; does not affect the "
                   "numbers.")  # fmt: skip
@click.option("--top", default=5, show_default=True, type=click.IntRange(0), metavar="K",
              help="Number of sentences to print per method.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of everything random.")
@click.option("--json", "form", flag_value="json", help="Print only the rows, as JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print only the rows, as CSV.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for the results as .json, .csv and .html.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def sources(
    source: str, file: Path | None, question: str, answer: str, ways: tuple[str, ...], known: str,
    documents: int, sentences: int, k: int | None, top: int, form: str | None, out: Path | None,
    quiet: bool, loading: Loading, imports: tuple[str, ...], **shared: Any,
) -> None:  # fmt: skip
    """Score the sentences of a document (FILE) by how much the answer of MODEL rests on them.

    First every way is judged on documents with known sources: precision at k, and the calibration
    of the confidence that is then stated for FILE. Without a file, only this is done.
    """
    _check(file, answer, known, ways)
    import_first(imports)
    voice = voice_of(quiet)
    with voice.bars(source) as tell:
        model = loading.checked(source, source, tell)
    from interp.heads.chains import Chain
    from interp.heads.context import answer_sources, judge_sources

    text = None
    if file is not None:
        from interp.core.prompt_file import prompt_text

        text = Chain.of_text(
            model, prompt_text(file), question=question, answer=answer, name=file.stem
        )
        text.fits(model, beyond=shared["beyond"])
    judged = found = None
    wanted = ways or WAYS
    if known != "none":
        given = _known(model, known, documents, sentences, shared["seed"], voice)
        with voice.bars("known documents") as tell:
            judged = judge_sources(model, given, ways=wanted, k=k, progress=tell, **shared)
    elif not ways:
        wanted = tuple(w for w in WAYS if w != "heads")
    if text is not None:
        found = answer_sources(model, text, ways=wanted, judged=judged, **shared)
    if form is not None:
        printed_rows(found or judged, form)  # type: ignore[arg-type]
    else:
        if judged is not None:
            _judged(judged)
        if found is not None:
            _found(found, top)
    for result, stem in ((judged, "judged"), (found, "sources")):
        if result is not None:
            saved_in(out, model.name, result, stem, voice)


def _check(file: Path | None, answer: str, known: str, ways: tuple[str, ...]) -> None:
    if file is not None and not answer:
        raise OptionError("give the answer whose sources are sought with --answer")
    if file is None and known == "none":
        raise OptionError("--known none leaves nothing to do without --file")
    if known == "none" and "heads" in ways:
        raise OptionError("--method heads chooses heads on known documents; leave out --known none")


def _known(
    model: Model, known: str, documents: int, sentences: int, seed: int, voice: Voice
) -> list[Chain]:
    """Return documents with known sources, of English sentences where the model reads them."""
    from interp.core.errors import PromptError
    from interp.heads.chains import linked_chains
    from interp.heads.context import sentence_documents

    if known != "ids":
        try:
            made = sentence_documents(model, documents=documents, sentences=sentences, seed=seed)
            voice.note(f"known documents: {documents} of {sentences} English sentences")
            return made
        except PromptError:
            if known == "sentences":
                raise
    voice.note(f"known documents: {documents} of {sentences} sentences of random tokens")
    return linked_chains(
        model, chains=documents, sentences=sentences, length=6, anchors=1, links=3, seed=seed
    )


def _judged(judged: SourceJudgement) -> None:
    rows = [("way", "precision", "95 % interval", "random order", "calibration error", "Brier",
             "of base rate")]  # fmt: skip
    for r in judged.to_pandas().to_dict("records"):
        rows.append((
            r["metric"], f"{r['score']:.2f}", f"{r['low']:.2f} to {r['high']:.2f}",
            f"{r['null']:.2f}", f"{r['calibration_error']:.3f}", f"{r['brier']:.3f}",
            f"{r['brier_of_base_rate']:.3f}",
        ))  # fmt: skip
    n, right = len(judged.documents), sum(judged.answered)
    click.echo(
        f"On {n} held-out documents with known sources, of which the model answers {right}:\n"
        + aligned_columns(rows)
    )
    if judged.heads_used:
        click.echo(f"  heads: {' '.join(map(str, judged.heads_used))}")


def _found(found: AnswerSources, top: int) -> None:
    for way in found.scores:
        part = found[way].to_pandas().sort_values("score", ascending=False).head(top)
        rows = [("sentence", "score", "confidence", "")]
        for r in part.to_dict("records"):
            words = " ".join(r["text"].split())
            sure = f"{r['confidence']:.2f}" if r["confidence"] == r["confidence"] else "-"
            rows.append((str(r["sentence"]), f"{r['score']:.3g}", sure,
                         words[:70] + "..." * (len(words) > 70)))  # fmt: skip
        unit = part["unit"].iloc[0] if len(part) else ""
        more = f"; correlation {found.fit:.2f} with held-out ablations"
        said = more if way == "ablations" and found.fit == found.fit else ""
        click.echo(f"\n{way} ({unit}{said}):\n{aligned_columns(rows)}")
