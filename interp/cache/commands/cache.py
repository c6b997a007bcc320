"""Command `interp cache`: what the key-value cache of each head must keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from interp.cli.between import write_files
from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.core.result import Result
    from interp.model.model import Model

GROUP = "Measure"
PATH = click.Path(path_type=Path)


def _check(run: Run) -> None:
    """Refuse options that exclude others; raises OptionError."""
    names = ("budget", "max_loss", "sources_of", "save", "format")
    budget, max_loss, sources, save, layout = (run.values[n] for n in names)
    planned = budget is not None or max_loss is not None
    if budget is not None and max_loss is not None:
        raise OptionError("give one of --budget and --max-loss")
    if sources and (planned or save):
        raise OptionError("sources_of makes no plan; leave out --budget, --max-loss and --save")
    if save is not None and not planned and layout != "duo":
        raise OptionError("without a plan, --save writes trained gates in the layout duo only")
    if save is not None:
        from interp.core.files import require_writable

        require_writable(save)


@command(
    options={
        "published": Spelling(("--against",), click.STRING, metavar="PATH"),
        "max_length": Spelling(
            type=FROM_1, default=48, help="Tokens of the longest needle prompt."
        ),
    },
    check=_check,
    text="interp.report.printed:nothing",
    example="interp cache bundled:stories --budget 60% --save patterns",
)
def cache(
    run: Run,
    model: Model,
    prompts: Any = None,
    *,
    budget: str | None = None,
    max_loss: float | None = None,
    sources_of: bool = False,
    save: Path | None = None,
    format: Literal["duo", "budgets"] = "duo",
    published: Path | None = None,
    max_length: int = 48,
    top: int = 5,
    seed: int = 0,
    batch_size: int = 16,
    progress: Any = None,
) -> list[Result]:
    """Show what the key-value cache of each head of MODEL must keep, or plan a smaller cache.

    Without a plan: retrieval and streaming heads by the published methods with their agreement, and
    a card per head with the measured loss when its cache keeps a sink and a window only. With
    --budget or --max-loss: which heads keep everything, and a bound on the loss of new prompts.

    Args:
        budget: plan for a cache of this size: bytes, 64KiB, or a share such as 40%.
        max_loss: plan for the smallest cache whose loss per token rises by at most this on new
            prompts.
        sources_of: measure instead how well heads find the part of a long context an answer comes
            from.
        save: write the plan, or without a plan the trained gates, for other programs.
        format: layout of --save.
        published: gates in DuoAttention's layout, a folder or .tsv, to compare with.
        max_length: tokens of the longest needle prompt.
        top: number of heads to print, of each metric.
        seed: seed of the default prompts.
        batch_size: prompts per forward pass.
    """
    from interp.report.printed.cache import text_of_cache

    shared: Any = {"seed": seed, "progress": progress}
    options: Any = {"batch_size": batch_size, **shared}
    if budget is not None or max_loss is not None:
        from interp.cache import cache_plan

        one = "one" if save is not None and format == "duo" else None
        plan = cache_plan(
            model,
            prompts,
            budget=budget,
            max_loss=max_loss,
            recent=one,
            **options,
        )
        if save is not None:
            plan.export(save, format)
            run.voice.note(f"{save}: the plan, for {format}")
        results: dict[str, Result] = {"plan": plan}
    elif sources_of:
        results = {"sources": _sources(model, max_length, **shared)}
    else:
        from interp.cache import cache_cards, retrieval_methods
        from interp.cache.patterns import read_pattern

        if published is not None:
            read_pattern(published, model)  # refused before anything is measured
        carded = cache_cards(model, prompts, **options)
        methods = retrieval_methods(
            model,
            max_length=max_length,
            min_length=min(32, max_length),
            published=published,
            **shared,
        )
        if save is not None:
            _export_gates(run, methods, save)
        results = {"cards": carded, "methods": methods}
    run.say(text_of_cache(model.name, results, top))
    if run.out is not None:
        about = {"hash": model.content_hash} | {
            name: run.values[name] for name in run.declared.given if name != "prompts"
        }
        about["prompts"] = None if prompts is None else str(prompts)
        for stem, result in results.items():
            name = model.name.replace("bundled:", "")
            folder = write_files(result, run.out, name, stem, about, run.voice)
            result.save(folder / f"{stem}.json")
    return [*results.values()]


def _export_gates(run: Run, methods: Any, folder: Path) -> None:
    from interp.cache import Window, write_pattern

    gates = methods.values["trained_gates"].mean(1).tolist()
    write_pattern(folder, methods.kv, gates, Window(2, 8))
    run.voice.note(f"{folder}: the trained gates, for DuoAttention")


def _sources(model: Model, max_length: int, *, seed: int, progress: Any) -> Result:
    from interp.cache import attribute_context
    from interp.heads.experiments._needles import chosen_task, instances_of
    from interp.heads.needle.instance import NeedleOptions

    sizes = (max(2, max_length // 2), max_length, 2)
    task = chosen_task(model, seed, sizes[1], 4)[0] or "ids"
    instances = instances_of(model, seed, NeedleOptions(task, 8, *sizes, 4, 4))
    return attribute_context(
        model, instances, segment=max(4, max_length // 16), seed=seed, progress=progress
    )
