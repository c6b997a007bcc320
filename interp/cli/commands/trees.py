"""`interp trees`: dependency trees from attention heads, beside what needs no model at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from interp.cli.config import config_option
from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.name_types import MODEL_NAME
from interp.cli.progress import Voice
from interp.core.errors import OptionError

JOINS = ("sum", "mean", "first", "max")
OF_SEARCH = ("stack", "to", "attending", "by", "controls", "seed")


@click.command(epilog="Example: interp trees bert-base-cased --treebank en.conllu -o results")
@click.argument("sources", nargs=-1, required=True, metavar="MODEL...", type=MODEL_NAME)
@click.option(
    "--treebank",
    "treebank",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Sentences with their trees, in CoNLL-U; by default the few that come with interp.",
)
@click.option(
    "--train",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Another treebank, on which heads, offsets and ensembles are chosen; by default half of "
    "--treebank, and numbers are from the other half.",
)
@click.option(
    "-n",
    "--sentences",
    "n",
    type=click.IntRange(2),
    metavar="N",
    help="The first N sentences of each file; all by default.",
)
@click.option(
    "--on-error",
    default="refuse",
    show_default=True,
    type=click.Choice(["refuse", "skip"]),
    help="What a treebank's errors do: stop, or skip the sentence and count it.",
)
@click.option("--stack", help="Which stack, such as encoder or decoder; all by default.")
@click.option(
    "--to",
    default="sum",
    show_default=True,
    type=click.Choice(JOINS),
    help="What a word receives of the pieces it is made of.",
)
@click.option(
    "--attending",
    default="mean",
    show_default=True,
    type=click.Choice(JOINS),
    help="How the pieces of the word that attends are joined.",
)
@click.option(
    "--by",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "words", "offsets"]),
    help="How pieces are known to be of a word: the tokenizer gets words, or the text and its "
    "characters are followed; auto gives decoders the text.",
)
@click.option(
    "--controls/--no-controls",
    default=True,
    show_default=True,
    help="Also read random weights and shuffled words, which takes twice as long.",
)
@click.option(
    "--pairs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Minimal pairs, JSONL with sentence_good and sentence_bad as BLiMP has: what the model "
    "loses on them without the heads above their baselines, beside random heads.",
)
@click.option("--heads", metavar="L0H1,...", help="With --pairs: take out these heads instead.")
@click.option("--seed", default=0, show_default=True, help="Of random weights, orders and draws.")
@click.option(
    "--top", default=12, show_default=True, type=click.IntRange(0), metavar="K",
    help="Relations to print, by the lower end of the interval of their difference from the "
    "baseline; relations with fewer than 10 dependents last.",
)  # fmt: skip
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write trees.json, relations.csv, trees.csv and a page trees.html here, and keep finished "
    "models: the same command goes on where it was interrupted.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else on stdout.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes.")
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
    """Look for dependency relations and trees in the attention of each MODEL.

    For every relation the best head is chosen on one part of the treebank and reported on the
    other, beside the best fixed offset, random weights and shuffled words; trees beside chains of
    neighbours.
    """
    from interp.cli.tree_search import TreeSearch

    loading.require_device()
    import_first(imports)
    if options["heads"] is not None and options["pairs"] is None:
        raise OptionError("--heads says which heads --pairs takes out; give --pairs")
    treebank = treebank or _own()
    for path in (treebank, train):
        if path is not None and not path.is_file():
            raise OptionError(f"{path} is no file; give a treebank in CoNLL-U")
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
