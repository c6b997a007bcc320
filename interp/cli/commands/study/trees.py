"""Command `interp study trees`: dependency trees from attention heads, with baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from interp.cli.config import config_option
from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import models_argument
from interp.cli.value_types import OUT_FOLDER
from interp.core.errors import OptionError

JOINS = ("sum", "mean", "first", "max")
OF_SEARCH = ("stack", "to", "attending", "by", "controls", "seed")


@click.command(epilog="Example: interp study trees bert-base-cased --treebank en.conllu -o results")
@models_argument
@click.option(
    "--treebank",
    "treebank",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Treebank file in CoNLL-U; by default the small one that comes with interp.",
)
@click.option(
    "--train",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Another treebank, used to choose heads, offsets and ensembles; by default half of "
    "--treebank, and numbers are from the other half.",
)
@click.option(
    "-n",
    type=click.IntRange(2),
    metavar="N",
    help="Use the first N sentences of each file; all by default.",
)
@click.option(
    "--on-error",
    default="refuse",
    show_default=True,
    type=click.Choice(["refuse", "skip"]),
    help="Handling of errors in a treebank: stop, or skip the sentence and count it.",
)
@click.option("--stack", help="Stack to use, such as encoder or decoder; all by default.")
@click.option(
    "--to",
    default="sum",
    show_default=True,
    type=click.Choice(JOINS),
    help="How attention to the pieces of a word is combined.",
)
@click.option(
    "--attending",
    default="mean",
    show_default=True,
    type=click.Choice(JOINS),
    help="How the rows of the pieces of an attending word are combined.",
)
@click.option(
    "--by",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "words", "offsets"]),
    help="How pieces are assigned to words: the tokenizer receives words, or receives the text "
    "and pieces are matched by character; auto gives decoders the text.",
)
@click.option(
    "--controls/--no-controls",
    default=True,
    show_default=True,
    help="Also run random weights and shuffled words, which takes twice as long.",
)
@click.option(
    "--pairs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Minimal pairs (JSONL with sentence_good and sentence_bad, as in BLiMP): effect of "
    "ablating the heads above their baselines, beside random heads.",
)
@click.option("--heads", metavar="L0H1,...", help="With --pairs: ablate these heads instead.")
@click.option(
    "--seed", default=0, show_default=True, help="Seed of random weights, orders and draws."
)
@click.option(
    "--top", default=12, show_default=True, type=click.IntRange(0), metavar="K",
    help="Number of relations to print, ordered by the lower end of the interval of their "
        "difference from the baseline; relations with fewer than 10 dependents come last.",
)  # fmt: skip
@click.option(
    "-o",
    "--out",
    type=OUT_FOLDER,
    metavar="DIR",
    help="Folder for trees.json, relations.csv, trees.csv and a page trees.html, and for finished "
    "models; the same command resumes an interrupted run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print only JSON on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@config_option()
@loading_options
def trees(
    sources: tuple[str, ...],
    treebank: Path | None,
    train: Path | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
    **options: Any,
) -> None:
    """Find dependency relations and trees in the attention of each MODEL.

    For every relation the best head is chosen on one part of the treebank and evaluated on the
    other, beside the best fixed offset, random weights and shuffled words. Trees are compared with
    chains of adjacent words.
    """
    from interp.cli.tree_search import TreeSearch

    loading.require_device()
    import_first(imports)
    if options["heads"] is not None and options["pairs"] is None:
        raise OptionError("--heads selects the heads that --pairs ablates; give --pairs")
    treebank = treebank or _own()
    for path in (treebank, train):
        if path is not None and not path.is_file():
            raise OptionError(f"{path} is not a file; give a treebank in CoNLL-U")
    context = click.get_current_context()
    voice = Voice(quiet=quiet, debug=bool(context.meta.get("interp.debug")))
    asked = {name: options.pop(name) for name in OF_SEARCH}
    search = TreeSearch.prepare(
        treebank, train, loading=loading, voice=voice, options=asked, **options
    )
    context.exit(search.run(sources))


def _own() -> Path:
    from interp.core.resources import folder

    return folder("data") / "treebank.conllu"
