"""Command `interp circuit path`: effects of nodes on a task through named routes."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.each import each_model
from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument


@click.command(
    epilog="Example: interp circuit path bundled:induction --task induction --route '*>1.0.k'"
)
@model_argument
@click.option("--task", default="induction", show_default=True, metavar="NAME|FILE",
    help="The task: a name of `interp circuit --list`, or a .jsonl or .py file.")  # fmt: skip
@click.option(
    "--route", "routes", multiple=True, required=True, metavar="ROUTE",
    help="A route such as '2.1>4.3.q>logits': a node (2.1, mlp0, embed, or * for each), then the "
         "inputs that read it; + joins several. May be given several times; quote it, because of "
         "the shell.",
)  # fmt: skip
@click.option("--mlp", "mlps", default="recompute", show_default=True,
              type=click.Choice(["recompute", "freeze"]),
              help="Compute the MLPs between the ends of a hop again, or keep their clean "
                   "outputs.")  # fmt: skip
@click.option("-n", default=64, show_default=True, type=click.IntRange(4), help="Number of pairs.")
@click.option("--seed", default=0, show_default=True, help="Seed of the prompts.")
@click.option("--top", default=20, show_default=True, type=click.IntRange(1),
              help="Number of routes to print.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write all routes to this file (.csv, .json, .parquet, .html ...).")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def path(
    task: str,
    source: str,
    routes: tuple[str, ...],
    mlps: str,
    n: int,
    seed: int,
    top: int,
    out: Path | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Patch named routes of MODEL, and print what a task loses through each.

    At each hop of a route all other heads keep their clean outputs. Tasks are those of
    `interp circuit --list`, or a file of pairs.
    """
    loading.require_device()
    import_first(imports)
    debug = bool(click.get_current_context().meta.get("interp.debug"))
    voice = Voice(quiet=quiet, debug=debug)
    from interp.circuits.path_patching import path_patching
    from interp.circuits.tasks import known_task, make_contrast

    task = known_task(task)

    def work(source: str, model_name: str) -> None:
        with voice.bars(model_name) as tell:
            model = loading.load(source, model_name)
            pairs = make_contrast(model, task, n=n, seed=seed)
            found = path_patching(model, pairs, routes, mlps=mlps, progress=tell)
        click.echo(
            f"{model_name}, {found.task}: {len(found)} routes, MLPs {mlps}, {len(found.gap)} pairs,"
            f" {found.gap.mean():.4g} {found.unit} from clean to corrupted"
        )
        width = max(len(route) for route in found.routes)
        for row in found.top(top).wide().to_dict("records"):
            click.echo(
                f"  {row['route']:<{width}}  {row['score']:8.4g} ± {row['sem']:.2g} {found.unit}"
                f"  share {row['share']:.3f} [{row['share_low']:.3f}, {row['share_high']:.3f}]"
            )
        if out is not None:
            found.save(out)
            voice.note(f"{out}: {len(found)} routes")

    failed = each_model(source_labels((source,)), voice, work)
    click.get_current_context().exit(int(bool(failed)))
