"""Command `interp report`: one page from results, or directly from a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.name_types import MODEL_NAME, STORED_METRIC_NAMES
from interp.cli.value_types import OUT_FOLDER
from interp.cli.written import as_given, beside, page_file
from interp.cli.wrong_models import require_one_known
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.cli.progress import Voice
    from interp.core.table import HeadTable

_TABLES = (".parquet", ".csv", ".json")
_MB = 1_000_000


@click.command(epilog="Example: interp report results gpt2 -o page.html")
@click.argument("sources", nargs=-1, required=True, metavar="RESULTS_OR_MODEL...", type=MODEL_NAME)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="File of the page (.html is added to a name without it), or a folder for report.html; "
    "its numbers are written beside it, as .csv and .json of the same name.",
)
@click.option(
    "-m",
    "--metric",
    "metrics",
    type=STORED_METRIC_NAMES,
    multiple=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="For results, show only these metrics; for models, the metrics to score, as for `interp "
    "score`.",
)
@click.option(
    "--keep",
    type=OUT_FOLDER,
    default=Path("results"),
    show_default=True,
    metavar="DIR",
    help="Folder that stores the scores of a MODEL, so that another run can resume.",
)
@click.option("--title", default="Attention heads", show_default=True)
@click.option(
    "--top",
    default=5,
    show_default=True,
    type=click.IntRange(0),
    help="Number of heads to list per metric.",
)
@click.option(
    "--budget",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    metavar="MB",
    help="Maximum size of the page in MB; with more heads than fit, its maps are drawn with less "
    "detail, which the page states.",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def report(
    sources: tuple[str, ...],
    out: Path,
    metrics: tuple[str, ...],
    keep: Path,
    title: str,
    top: int,
    budget: float,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Write one self-contained page that works offline.

    Each argument is a folder written by `interp score`, a table (.parquet, .csv, .json), or a
    MODEL, which is scored first. Several models are shown side by side.
    """
    from interp.cli.progress import Voice
    from interp.cli.stopping import goes_on
    from interp.core.declaration import split_names
    from interp.core.registry import METRICS
    from interp.report import write_report

    context = click.get_current_context()
    out = page_file(out, "report.html")
    numbers = [beside(out, suffix) for suffix in (".csv", ".json")]
    _require_apart(sources, numbers)
    voice = Voice(quiet=quiet, debug=bool(context.meta.get("interp.debug")))
    kept = {source: is_results(Path(source).expanduser()) for source in sources}
    tables = {
        source: read_scores(Path(source).expanduser())
        for source, is_kept in kept.items()
        if is_kept
    }
    asked = [name for text in metrics for name in split_names(text)]
    if tables and asked:
        tables = _only(tables, asked)
    models = [source for source, is_kept in kept.items() if not is_kept]
    colours, failed = METRICS.ranges(), []
    if models:
        require_one_known(models)
        for name in asked:
            METRICS.check(name)
        from interp.cli.batch import ScoreRun

        loading.require_device()
        import_first(imports)
        batch = ScoreRun.prepare(
            metrics=metrics, out=keep, loading=loading, quiet=quiet, prompt_file=None, context=None,
            null="auto", seed=0, batch_size=16, engine="auto",
        )  # fmt: skip
        with goes_on(voice, keep):
            tables["scored now"] = batch.scored(source_labels(models))
        failed = batch.failed
        colours |= {b.label: (b.analysis.low, b.analysis.high) for b in batch.metrics}
    elif asked:
        for name in asked:  # results may contain a user-supplied metric, with its own range
            if Path(name.partition(":")[0]).suffix == ".py":
                bound = METRICS.parse(name)
                colours[bound.label] = (bound.analysis.low, bound.analysis.high)
    table = _together(tables, voice)
    if failed and not len(table):
        context.exit(1)
    size = write_report(
        table,
        out,
        ranges=colours,
        title=title,
        command=as_given(),
        beside=[path.name for path in numbers],
        top=top,
        budget=round(budget * _MB),
    )
    table.to_csv(numbers[0])
    table.to_json(numbers[1])
    names = " and ".join(path.name for path in numbers)
    voice.note(f"{out}: {size / _MB:.2f} MB; its numbers in {names}")
    context.exit(int(bool(failed)))


def _require_apart(sources: Sequence[str], numbers: Sequence[Path]) -> None:
    """Refuse to overwrite an input: a given table, or one in a given results folder."""
    for source in sources:
        path = Path(source).expanduser()
        for number in numbers:
            inside = path.is_dir() and number.exists() and number.resolve().parent == path.resolve()
            if inside or number.resolve() == path.resolve():
                raise OptionError(
                    f"the page's numbers would overwrite {number}; give --out another name"
                )


def is_results(path: Path) -> bool:
    """Return True for a table of scores or a folder of them, False for a model."""
    if path.is_file():
        if path.suffix.lower() in _TABLES:
            return True
        raise OptionError(
            f"{path} is neither a table of scores ({', '.join(_TABLES)}) nor a model folder"
        )
    return path.is_dir() and not (path / "config.json").exists() and any(path.glob("*.parquet"))


def read_scores(path: Path) -> HeadTable:
    """Read the scores of a file, or all of a folder; raise StoreError."""
    from interp.core.store import Store
    from interp.core.table import HeadTable

    if path.is_file():
        return HeadTable.read(path)
    stored = Store(path)
    if stored.keys():
        return stored.read()
    return HeadTable.read(path / "table.parquet")


def _together(tables: Mapping[str, HeadTable], voice: Voice) -> HeadTable:
    """Combine the tables of all sources; models that differ get distinct names."""
    from interp.core.merge import merged, renamed, told_apart

    parts, notes = told_apart(tables.values())
    first: dict[tuple[str, str], HeadTable] = {}
    twice: dict[str, None] = {}
    for part in parts:
        for key in part.provenance:
            rows = part.where(model=key[0], metric=key[1])
            if first.setdefault(key, rows) != rows:
                twice[key[0]] = None
    if twice:
        notes.append(
            f"{', '.join(twice)}: scored with different settings, so each name includes its source"
        )
        parts = [
            renamed(part, {model: f"{model} ({source})" for model in twice})
            for source, part in zip(tables, parts, strict=True)
        ]
    for note in notes:
        voice.note(note)
    return merged(parts)[0]


def _only(tables: Mapping[str, HeadTable], names: list[str]) -> dict[str, HeadTable]:
    """Select the rows of these metrics; each must be in one of the tables."""
    from interp.core.errors import UnknownName

    there = list(dict.fromkeys(m for table in tables.values() for m in table.metrics))
    wanted: set[str] = set()
    for name in names:
        found = {m for m in there if name in (m, m.partition(":")[0])}
        if not found:
            raise UnknownName("metric", name, there)
        wanted |= found
    return {
        source: table.where(metric=[m for m in table.metrics if m in wanted])
        for source, table in tables.items()
    }
