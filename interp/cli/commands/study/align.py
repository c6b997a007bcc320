"""Command `interp study align`: word alignments, translation heads, DecoderLens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.each import each_model
from interp.cli.lens_table import decoder_lens_text
from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument
from interp.cli.traced_prompts import aligned_table, saved_in
from interp.cli.value_types import OUT_FOLDER, ItemFile
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.heads.alignment import HeadAlignments, SentencePair, TranslationHeads
    from interp.model.model import Model

OWN = "bundled:reorder"
FILES = {"words": "alignment", "heads": "translation_heads", "decoder-lens": "decoder_lens"}


def _pairs(path: str) -> list[SentencePair]:
    from interp.heads.alignment.pair_file import read_sentence_pairs

    return read_sentence_pairs(path)


@click.command(
    epilog="Example: interp study align bundled:reorder --pair 0 --picture alignment.html"
)
@model_argument
@click.option("--file", "pairs", type=ItemFile(_pairs), metavar="FILE",
    help="File of pairs of source and target (.jsonl).")  # fmt: skip
@click.option(
    "-m", "--method", "measure", default="words", show_default=True,
    type=click.Choice(["words", "heads", "decoder-lens"]),
    help="words: alignment error rate of every cross-attention head. heads: ablation of every head "
         "beside its confidence and position variance. decoder-lens: loss when the decoder reads "
         "an earlier encoder layer.",
)  # fmt: skip
@click.option("--rows", default="both", show_default=True,
              type=click.Choice(["both", "emits", "fed"]),
              help="Decoder row that stands for a target word: the row that predicts it, or the "
                   "row that reads it.")  # fmt: skip
@click.option("--select", default=0.5, show_default=True,
              type=click.FloatRange(0, 1, min_open=True, max_open=True),
              help="Share of the pairs on which the best heads are chosen.")  # fmt: skip
@click.option("--null", default="shuffled", show_default=True,
              type=click.Choice(["shuffled", "other"]),
              help="Gold links of the null: those of shuffled source words, or of another "
                   "pair.")  # fmt: skip
@click.option("-n", default=64, show_default=True, type=click.IntRange(4), metavar="N",
              help="Number of generated pairs if no file is given.")  # fmt: skip
@click.option("--top", default=12, show_default=True, type=click.IntRange(1),
              help="Number of rows to print.")  # fmt: skip
@click.option("--pair", type=click.IntRange(0), metavar="I",
              help="Index of the pair to draw with --picture, from 0.")  # fmt: skip
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.html",
              help="Draw how the best head aligns one pair: matrix and lines.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of split and null.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for alignment, with one pair by the best head, translation_heads or "
                   "decoder_lens, as .json, .csv and .html; `interp atlas` reads it.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def align(
    source: str, pairs: list[SentencePair] | None, measure: str, rows: Any, select: float,
    null: Any, n: int, top: int, pair: int | None, picture: Path | None, seed: int,
    out: Path | None, quiet: bool, loading: Loading, imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Measure the cross attention of an encoder-decoder MODEL on pairs of sentences.

    Each line of the file is an object such as {"source": "the cat", "target": "le chat",
    "alignment": "0-0 1-1"}; the alignment names source and target words from 0, with p in place of
    - for a possible link. Only the measure `words` needs alignments. bundled:reorder has pairs of
    its own. Heads are chosen on some pairs and judged on the others.
    """
    if pairs is None and source != OWN:
        raise OptionError(f"give --file PAIRS.jsonl; only {OWN} has pairs of its own")
    if (pair is None) != (picture is None):
        raise OptionError("--pair and --picture must be given together")
    if picture is not None and (measure != "words" or picture.suffix != ".html"):
        raise OptionError("--picture is an .html file of the measure words")
    if pair is not None and pair >= (n if pairs is None else len(pairs)):
        raise OptionError(
            f"--pair {pair}: there are {n if pairs is None else len(pairs)} pairs, counted from 0"
        )
    loading.require_device()
    import_first(imports)
    voice = Voice.of_command(quiet=quiet)

    def work(path: str, name: str) -> None:
        from interp.heads import alignment

        found: Any
        with voice.bars(name) as tell:
            model = loading.load(path, name)
            given = alignment.made_sentence_pairs(n) if pairs is None else pairs
            if measure == "words":
                found = alignment.word_alignment(
                    model, given, rows=rows, select=select, null=null, seed=seed, progress=tell
                )
                told = _words(found, top)
            elif measure == "heads":
                found = alignment.translation_heads(model, given, seed=seed, progress=tell)
                told = _heads(found, top)
            else:
                from interp.lens import decoder_lens

                encoded = alignment.encode_pairs(model, given)
                found = decoder_lens(model, encoded.prompts, labels=encoded.labels)
                told = decoder_lens_text(found)
        click.echo(f"{name}: {told}")
        saved_in(out, model.name, found, FILES[measure], voice)
        if out is not None and measure == "words":
            best = found.best_head()
            shown = found.judged[0] if pair is None else pair
            one = alignment.pair_alignment(model, given[shown], best.of[0], rows=best.rows[0])
            saved_in(out, model.name, one, "pair", voice)
        if picture is not None and pair is not None:
            _draw(model, found, given[pair], picture)
            voice.note(f"{picture}: pair {pair}")

    failed = each_model(source_labels((source,)), voice, work)
    click.get_current_context().exit(int(bool(failed)))


def _words(found: HeadAlignments, top: int) -> str:
    table = [("head", "row", "error", "95 % interval", "null", "p (Holm)", "precision", "recall",
              "coverage", "forward", "best")]  # fmt: skip
    for r in found.top(top).to_pandas().to_dict("records"):
        table.append((
            f"L{r['layer']}H{r['head']}", r["rows"], f"{r['score']:.3f}",
            f"{r['low']:.3f} to {r['high']:.3f}", f"{r['null']:.3f}", f"{r['p_holm']:.2g}",
            f"{r['precision']:.3f}", f"{r['recall']:.3f}", f"{r['coverage']:.3f}",
            f"{r['monotonicity']:.3f}", "of layer" if r["best_of_layer"] else "",
        ))  # fmt: skip
    about = (
        f"alignment error rate (share of links), interval over {found.counts.shape[1]} judged "
        "pairs; coverage: share of source words with a link; forward: share of neighbouring target "
        "words that do not go back"
    )
    return f"{found}\n  {about}\n{aligned_table(table)}"


def _heads(found: TranslationHeads, top: int) -> str:
    table = [("head", "loss without it", "error", "null", "confidence", "position variance")]
    for r in found.top(top).to_pandas().to_dict("records"):
        table.append((
            f"{r['stack']}.L{r['layer']}H{r['head']}", f"{r['score']:+.3g}", f"{r['sem']:.2g}",
            f"{r['null']:+.3g}", f"{r['confidence']:.3f}", f"{r['position_variance']:.3f}",
        ))  # fmt: skip
    ranks = [("heads", "statistic", "Spearman with the loss", "95 % interval")]
    for r in found.rank_agreement().to_dict("records"):
        ranks.append((
            f"{r['stack']} ({r['heads']})", r["statistic"], f"{r['spearman']:+.2f}",
            f"{r['low']:+.2f} to {r['high']:+.2f}",
        ))  # fmt: skip
    about = (
        f"rise of the loss in nats per target token without the head, standard error over "
        f"{found.per_prompt.shape[1]} pairs, null: random weights; confidence: mean largest "
        "weight; position variance in squared tokens"
    )
    ranked = "Spearman's correlation over heads, interval over pairs; 0 without a relation"
    return f"{found}\n  {about}\n{aligned_table(table)}\n  {ranked}\n{aligned_table(ranks)}"


def _draw(model: Model, found: Any, pair: SentencePair, path: Path) -> None:
    from interp.core.files import write_atomically
    from interp.draw.figure import svg
    from interp.draw.page import page
    from interp.heads.alignment import pair_alignment

    best = found.best_head()
    one = pair_alignment(model, pair, best.of[0], rows=best.rows[0])
    parts = [("Links between the words", svg(one.lines())), ("Best heads", found.best().wide())]
    title = f"Word alignment by cross attention of {model.name}"
    write_atomically(path, page(title, one.matrix(), parts, dict(found.provenance)))
