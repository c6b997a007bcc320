"""Command `interp study align`: word alignments of cross attention, and translation heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.value_types import ItemFile
from interp.cli.vocabulary import FROM_0, FROM_1, Spelling
from interp.cli.written import OUT_FILE
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.alignment import SentencePair
    from interp.model.model import Model

OWN = "bundled:reorder"
FILES = {
    "words": "alignment",
    "heads": "translation_heads",
    "decoder-lens": "decoder_lens",
    "simultaneous": "simultaneous",
}
ENDS = ("json", "csv", "html")


def _read(path: str) -> list[SentencePair]:
    from interp.alignment.pair_file import read_sentence_pairs

    return read_sentence_pairs(path)


def _pairs(run: Run) -> list[SentencePair]:
    from interp.alignment import made_sentence_pairs

    pairs = run.values["pairs"]
    return made_sentence_pairs(run.values["n"]) if pairs is None else pairs


def _check(run: Run) -> None:
    pairs, pair, picture, method, n = (
        run.values[name] for name in ("pairs", "pair", "picture", "method", "n")
    )
    if pairs is None and run.sources != (OWN,):
        raise OptionError(f"give --file PAIRS.jsonl; only {OWN} has pairs of its own")
    if (pair is None) != (picture is None):
        raise OptionError("--set pair and --set picture must be given together")
    if picture is not None and (method != "words" or picture.suffix != ".html"):
        raise OptionError("--set picture is an .html file of the measure words")
    number = n if pairs is None else len(pairs)
    if pair is not None and pair >= number:
        raise OptionError(f"--set pair={pair}: there are {number} pairs, counted from 0")


@command(
    usual=OWN,
    inputs={"pairs": Input(_pairs, ("pairs", "n"), _check)},
    options={
        "pairs": Spelling(
            ("--file",),
            ItemFile(_read),
            "FILE",
            "File of pairs of source and target (.jsonl).",
            default=None,
        ),
        "n": Spelling(
            type=click.IntRange(4),
            default=64,
            help="Number of generated pairs if no file is given.",
        ),
        "top": Spelling(type=FROM_1),
        "heads": Spelling(
            help="With -m simultaneous: cross-attention heads that decide; by default all of the "
            "layer at two thirds of the depth."
        ),
        "pair": Spelling(type=FROM_0, metavar="I"),
        "picture": Spelling(type=OUT_FILE, metavar="FILE.html"),
    },
    text="interp.report.printed:nothing",
    example="interp study align bundled:reorder --set pair=0 --set picture=alignment.html",
)
def align(
    run: Run,
    model: Model,
    pairs: list[SentencePair],
    *,
    method: Literal["words", "heads", "decoder-lens", "simultaneous"] = "words",
    policy: Literal["edatt", "alignatt", "wait-k"] = "edatt",
    heads: Any = None,
    rows: Literal["both", "emits", "fed"] = "both",
    null: Literal["shuffled", "other"] = "shuffled",
    top: int = 12,
    pair: int | None = None,
    picture: Path | None = None,
    seed: int = 0,
    progress: Any = None,
) -> Any:
    """Measure the cross attention of an encoder-decoder MODEL on pairs of sentences.

    Each line of the file is an object such as {"source": "the cat", "target": "le chat",
    "alignment": "0-0 1-1"}; the alignment names source and target words from 0, with p in place of
    - for a possible link. Only the measure `words` needs alignments. bundled:reorder has pairs of
    its own. Heads are chosen on some pairs and judged on the others. `interp atlas` reads what
    --out writes.

    Args:
        method: words: alignment error rate of every cross-attention head. heads: ablation of every
            head beside its confidence and position variance. decoder-lens: loss when the decoder
            reads an earlier encoder layer. simultaneous: quality and latency when the model
            translates while it still reads.
        policy: with -m simultaneous: rule by which the model waits for more source.
        rows: decoder row that stands for a target word: the row that predicts it, or the row that
            reads it.
        null: gold links of the null: those of shuffled source words, or of another pair.
        top: number of rows to print.
        pair: index of the pair to draw with --set picture, from 0.
        picture: draw how the best head aligns one pair: matrix and lines.
        seed: seed of split and null.
    """
    from interp import alignment
    from interp.report.printed.alignment import alignments_text, translation_heads_text

    result: Any
    if method == "words":
        result = alignment.word_alignment(
            model, pairs, rows=rows, null=null, seed=seed, progress=progress
        )
        text = alignments_text(result, top)
    elif method == "heads":
        result = alignment.translation_heads(model, pairs, seed=seed, progress=progress)
        text = translation_heads_text(result, top)
    elif method == "simultaneous":
        from interp.policies import simultaneous
        from interp.report.printed.alignment import simultaneous_text

        result = simultaneous(model, pairs, policy, heads=heads, progress=progress)
        text = simultaneous_text(result)
    else:
        from interp.lens import decoder_lens
        from interp.report.printed.lens import decoder_lens_text

        encoded = alignment.encode_pairs(model, pairs)
        result = decoder_lens(model, encoded.prompts, labels=encoded.labels)
        text = decoder_lens_text(result)
    run.say(f"{model.name}: {text}")
    run.write(result, *(f"{FILES[method]}.{end}" for end in ENDS))
    if run.out is not None and method == "words":
        best = result.best_head()
        shown = result.judged[0] if pair is None else pair
        one = alignment.pair_alignment(model, pairs[shown], best.of[0], rows=best.rows[0])
        run.write(one, *(f"pair.{end}" for end in ENDS))
    if picture is not None and pair is not None:
        _draw(model, result, pairs[pair], picture)
        run.voice.note(f"{picture}: pair {pair}")
    return result


def _draw(model: Model, found: Any, pair: SentencePair, path: Path) -> None:
    from interp.alignment import pair_alignment
    from interp.core.files import write_atomically
    from interp.draw.figure import svg
    from interp.draw.page import page

    best = found.best_head()
    one = pair_alignment(model, pair, best.of[0], rows=best.rows[0])
    parts = [("Links between the words", svg(one.lines())), ("Best heads", found.best().wide())]
    title = f"Spelling alignment by cross attention of {model.name}"
    provenance, line = dict(found.provenance), one.first_line()
    write_atomically(path, page(title, one.matrix(), parts, provenance, heading=line))
