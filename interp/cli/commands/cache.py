"""Command `interp cache`: what the key-value cache of each head must keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.between import (
    comparison_options,
    printed_rows,
    prompts_of_file,
    voice_of,
    write_files,
)
from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.shared_options import model_argument
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.cli.progress import Voice
    from interp.core.prompt_file import FilePrompts
    from interp.core.result import Result
    from interp.model.model import Model

GROUP = "Measure"


@click.command(epilog="Example: interp cache bundled:induction --budget 60% --export patterns")
@model_argument
@click.option(
    "--budget",
    metavar="SIZE",
    help="Plan for a cache of this size: bytes, 64KiB, or a share such as 40%.",
)
@click.option(
    "--max-loss",
    type=float,
    metavar="NATS",
    help="Plan for the smallest cache whose loss per token rises by at most this on new prompts; "
    "without a plan, the bound of each head's budget (0.01 by default).",
)
@click.option(
    "--confidence",
    "level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="With a plan: probability with which the bound holds for a new prompt (default 0.95); a "
    "higher one needs more prompts.",
)
@click.option("--cards", is_flag=True, help="With --max-loss: cards of the heads, and no plan.")
@click.option(
    "--sources",
    is_flag=True,
    help="Measure instead how well heads find the part of a long context an answer comes from.",
)
@click.option("--length", type=click.IntRange(1), help="Tokens for which a plan counts bytes.")
@click.option(
    "--sink", default=4, show_default=True, type=click.IntRange(0), help="First tokens kept."
)
@click.option(
    "--recent",
    "recents",
    multiple=True,
    type=click.IntRange(1),
    metavar="N",
    help="Last tokens kept, the current one included; repeatable. Powers of two from 4 by default; "
    "one of them, up to a quarter of the longest prompt, for --export in the layout duo.",
)
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the plan, or without a plan the trained gates, for other programs.",
)
@click.option(
    "--format",
    "layout",
    default="duo",
    show_default=True,
    type=click.Choice(["duo", "kvpress"]),
    help="Layout of --export.",
)
@click.option(
    "--published",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Gates in DuoAttention's layout, a folder or .tsv, to compare with.",
)
@click.option(
    "--task", default="auto", show_default=True, help="Needles, as in the metric retrieval."
)
@click.option(
    "--max-length",
    "longest",
    default=48,
    show_default=True,
    help="Tokens of the longest needle prompt.",
)
@comparison_options(top=5)
@loading_options
def cache(
    source: str,
    budget: str | None,
    max_loss: float | None,
    cards: bool,
    sources: bool,
    prompt_file: Path | None,
    out: Path | None,
    top: int,
    form: str | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
    **options: Any,
) -> None:
    """Show what the key-value cache of each head of MODEL must keep, or plan a smaller cache.

    Without a plan: retrieval and streaming heads by the published methods with their agreement, and
    a card per head with the measured loss when its cache keeps a sink and a window only. With
    --budget or --max-loss: which heads keep everything, and a bound on the loss of new prompts.
    """
    planned = _planned(budget, max_loss, cards, sources, options)
    loading.require_device()
    import_first(imports)
    voice = voice_of(quiet)
    if options["export"] is not None:
        from interp.core.files import require_writable

        require_writable(options["export"])
    prompts = prompts_of_file(prompt_file)
    with voice.bars(source) as tell:
        model = loading.checked(source, source, tell)
    asked = {"budget": budget, "max_loss": max_loss}
    if planned:
        found = _plan(model, prompts, asked, options, voice)
    elif sources:
        found = _sources(model, options, voice)
    else:
        found = _heads(model, prompts, max_loss, options, voice)
    from interp.report.printed.cache import text_of_cache

    if form is not None:
        for result in found.values():
            printed_rows(result, form)
    else:
        click.echo(text_of_cache(model.name, found, top))
    if out is not None:
        about = {"hash": model.content_hash, "prompts": prompt_file and str(prompt_file)} | asked
        for stem, result in found.items():
            name = model.name.replace("bundled:", "")
            folder = write_files(result, out, name, stem, about | options, voice)
            result.save(folder / f"{stem}.json")


def _planned(
    budget: str | None, max_loss: float | None, cards: bool, sources: bool, options: dict[str, Any]
) -> bool:
    """Return True if a plan is asked for; raises OptionError for options that exclude others."""
    planned = (budget is not None or max_loss is not None) and not cards
    if budget is not None and (cards or max_loss is not None):
        raise OptionError("give one of --budget and --max-loss, and --cards only with --max-loss")
    if options["level"] is not None and not planned:
        raise OptionError("--confidence is for the bound of a plan; give --budget or --max-loss")
    if sources and (planned or cards or options["export"]):
        raise OptionError("--sources makes no plan; leave out --budget, --max-loss and --export")
    if options["export"] is not None and not planned and options["layout"] != "duo":
        raise OptionError("without a plan, --export writes trained gates in the layout duo only")
    return planned


def _plan(
    model: Model,
    prompts: FilePrompts | None,
    asked: dict[str, Any],
    options: dict[str, Any],
    voice: Voice,
) -> dict[str, Result]:
    from interp.heads.kv_cache import cache_plan

    one = "one" if options["export"] is not None and options["layout"] == "duo" else None
    with voice.bars("plan") as tell:
        plan = cache_plan(
            model,
            prompts,
            **asked,
            level=options["level"] or 0.95,
            length=options["length"],
            sink=options["sink"],
            recents=options["recents"] or one,
            batch_size=options["batch_size"],
            seed=options["seed"],
            progress=tell,
        )
    if options["export"] is not None:
        plan.export(options["export"], options["layout"])
        voice.note(f"{options['export']}: the plan, for {options['layout']}")
    return {"plan": plan}


def _sources(model: Model, options: dict[str, Any], voice: Voice) -> dict[str, Result]:
    from interp.heads.experiments._needles import chosen_task, instances_of
    from interp.heads.kv_cache import attribute_context

    longest, seed = options["longest"], options["seed"]
    sizes, task = (max(2, longest // 2), longest, 2), options["task"]
    if task == "auto":
        task = chosen_task(model, seed, sizes, 4)[0] or "ids"
    instances = instances_of(model, seed, task, 8, sizes, 4, 4)
    with voice.bars("sources") as tell:
        found = attribute_context(
            model, instances, segment=max(4, longest // 16), seed=seed, progress=tell
        )
    return {"sources": found}


def _heads(
    model: Model,
    prompts: FilePrompts | None,
    max_loss: float | None,
    options: dict[str, Any],
    voice: Voice,
) -> dict[str, Result]:
    from interp.heads.kv_cache import Window, cache_cards, retrieval_methods, write_pattern
    from interp.heads.kv_cache.patterns import read_pattern

    if options["published"] is not None:
        read_pattern(options["published"], model)  # refused before anything is measured
    with voice.bars("cards") as tell:
        cards = cache_cards(
            model,
            prompts,
            sink=options["sink"],
            recents=options["recents"] or None,
            max_loss=0.01 if max_loss is None else max_loss,
            batch_size=options["batch_size"],
            seed=options["seed"],
            progress=tell,
        )
    with voice.bars("methods") as tell:
        methods = retrieval_methods(
            model,
            task=options["task"],
            longest=options["longest"],
            shortest=min(32, options["longest"]),
            published=options["published"],
            seed=options["seed"],
            progress=tell,
        )
    if options["export"] is not None:
        gates = methods.values["trained_gates"].mean(1).tolist()
        write_pattern(options["export"], methods.kv, gates, Window(2, 8))
        voice.note(f"{options['export']}: the trained gates, for DuoAttention")
    return {"cards": cards, "methods": methods}
