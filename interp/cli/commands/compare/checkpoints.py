"""Command `interp compare checkpoints`: scores of every head over a training run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.between import (
    aligned_columns,
    comparison_options,
    printed_rows,
    prompts_of_file,
    voice_of,
    write_files,
)
from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.name_types import METRIC_NAMES, MODEL_NAME
from interp.cli.wrong_models import require_known
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.heads.checkpoints.result import Emergence


@click.command(
    epilog="Example: interp compare checkpoints bundled:induction -m induction -o results"
)
@click.argument("sources", nargs=-1, required=True, metavar="RUN...", type=MODEL_NAME)
@click.option(
    "-m",
    "--metric",
    "metrics",
    type=METRIC_NAMES,
    multiple=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="A metric, or several separated by commas; repeatable. By default previous_token, "
    "induction and first_token.",
)
@click.option(
    "--revisions",
    metavar="NAME,...",
    help="Revisions of the hub model RUN, such as step1000,step2000.",
)
@comparison_options(top=5)
@loading_options
def checkpoints(
    sources: tuple[str, ...],
    metrics: tuple[str, ...],
    revisions: str | None,
    prompt_file: Path | None,
    out: Path | None,
    top: int,
    form: str | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
    **options: Any,
) -> None:
    """Score every head at the checkpoints of a training run, and find when scores change.

    RUN is a folder of checkpoints, bundled:induction, a hub id with --revisions, or several
    checkpoints. The step is read from trainer_state.json, or from names such as checkpoint-500.
    """
    for source in sources:
        if not Path(source).expanduser().exists():  # a folder of checkpoints holds no model itself
            require_known(source)
    import interp
    from interp.core.declaration import split_names
    from interp.core.registry import METRICS

    loading.require_device()
    import_first(imports)
    voice = voice_of(quiet)
    prompts = prompts_of_file(prompt_file)
    asked = METRICS.expand([n for text in metrics for n in split_names(text)]) if metrics else None
    named = [x.strip() for x in revisions.split(",") if x.strip()] if revisions else None
    if named and len(sources) > 1:
        raise OptionError("--revisions are those of one hub model; name only that one")
    run: Any = sources[0] if len(sources) == 1 else list(sources)
    with voice.bars("checkpoints") as tell:
        found = interp.emergence(run, asked, prompts, revisions=named, progress=tell, **options)
    if form is not None:
        printed_rows(found, form)
    else:
        click.echo(text_of_emergence(found, top))
    if out is not None:
        made = found.provenance
        about = {"hashes": [x["content_hash"] for x in made["checkpoints"]]}
        about |= {"metrics": list(found.metrics), "prompts": made["prompts_hash"]}
        name = f"{Path(made['model']).name} emergence".replace("bundled:", "")
        write_files(found, out, name, "emergence", about | options, voice)


def text_of_emergence(found: Emergence, k: int) -> str:
    """Format the largest changes of each metric."""
    lines = [repr(found)]
    changed = found.change_points()
    for metric in found.metrics:
        rows: list[tuple[str, ...]] = [
            ("head", "change after", "until", "95 % of the step", "size", "p_holm", "p_bh")
        ]
        mine: Any = changed[changed["metric"] == metric] if len(changed) else changed
        for row in mine.head(k).to_dict("records"):
            name = f"L{row['layer']}H{row['head']}"
            within = f"{row['low']} to {row['high']}"
            p = (f"{row[c]:.2g}" for c in ("p_holm", "p_bh"))
            size = f"{row['size']:+.3f}"
            rows.append((name, str(row["after"]), str(row["until"]), within, size, *p))
        lines += [f"  {metric}", aligned_columns(rows, "    ")]
    return "\n".join([*lines, ""])
