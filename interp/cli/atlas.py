"""The page of `interp atlas`: options, scoring of models, and writing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.name_types import MODEL_NAME, STORED_METRIC_NAMES
from interp.cli.value_types import OUT_FOLDER
from interp.cli.written import OutFile, as_given, beside
from interp.cli.wrong_models import require_one_known
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.cli.batch import ScoreRun
    from interp.core.table import HeadTable

TABLES = (".parquet", ".csv", ".json")
_MB = 1_000_000

_OPTIONS = (
    click.argument(
        "sources", nargs=-1, required=True, metavar="RESULTS_OR_MODEL...", type=MODEL_NAME
    ),
    click.option(
        "-m",
        "--metric",
        "metrics",
        type=STORED_METRIC_NAMES,
        multiple=True,
        metavar="NAME[:OPTION=VALUE,...]",
        help="For results, show only these metrics; for models, the metrics to score, as for "
        "`interp score`.",
    ),
    click.option(
        "--resume",
        "keep",
        type=OUT_FOLDER,
        default=Path("results"),
        show_default=True,
        metavar="DIR",
        help="Folder that stores the scores of a MODEL, so that another run can resume.",
    ),
    click.option("--title", default="Attention heads", show_default=True),
    click.option(
        "--top",
        default=4,
        show_default=True,
        type=click.IntRange(1),
        help="Number of heads to name in the sentence of a role.",
    ),
    click.option(
        "--examples/--no-examples",
        default=True,
        show_default=True,
        help="For each MODEL, show the prompts that drive each head and the tokens that it writes, "
        "and write the attention of its heads to NAME-MODEL.html beside the page.",
    ),
    click.option(
        "--budget",
        default=10.0,
        show_default=True,
        type=click.FloatRange(0, min_open=True),
        metavar="MB",
        help="Maximum size of the page in MB; a larger one is drawn with less detail, which the "
        "page states.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes."),
)


def atlas_options(name: str) -> Callable[[Callable], Callable]:
    """Return a decorator that adds the options; `name` is the default file of the page."""
    out = click.option(
        "-o",
        "--out",
        type=OutFile(name, beside=(".csv", ".json")),
        default=Path(name),
        show_default=True,
        metavar="FILE",
        help=f"File of the page (.html is added to a name without it), or a folder for {name}; its "
        "numbers are written beside it, as .csv and .json of the same name.",
    )

    def add(function: Callable) -> Callable:
        function = loading_options(function)
        for option in reversed((_OPTIONS[0], out, *_OPTIONS[1:])):
            function = option(function)
        return function

    return add


def write_atlas(
    *,
    sources: tuple[str, ...],
    out: Path,
    metrics: tuple[str, ...],
    keep: Path,
    title: str,
    top: int,
    examples: bool,
    budget: float,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> int:
    """Build the atlas of results and models, write its page, and return the exit code.

    Args:
        sources: folders of results, tables, and models.
        out: file of the page.
        metrics: the metrics to show or to score; all, or the default ones.
        keep: folder for the scores of models.
        title: title of the page.
        top: number of heads to name in a sentence.
        examples: add examples of the heads of models.
        budget: maximum size of the page in MB.
        quiet: print no notes.
        loading: how to load models.
        imports: modules that were named with --import.

    Raises:
        OptionError: a source is neither results nor a model, or the page does not fit.
        StoreError: a file cannot be read or written.
    """
    from interp.cli.progress import Voice
    from interp.core.declaration import split_names
    from interp.core.files import write_atomically
    from interp.core.registry import METRICS

    numbers = [beside(out, suffix) for suffix in (".csv", ".json")]
    _require_apart(sources, numbers)
    context = click.get_current_context()
    voice = Voice(quiet=quiet, debug=bool(context.meta.get("interp.debug")))
    results = [source for source in sources if is_results(Path(source).expanduser())]
    models = [source for source in sources if source not in results]
    asked = [name for text in metrics for name in split_names(text)]
    require_one_known(models)
    if models:
        for each in asked:
            METRICS.check(each)
    from interp.report.atlas.build import atlas_of, contents_of
    from interp.report.atlas.page import atlas_page

    found = contents_of([Path(source).expanduser() for source in results])
    if results and asked:
        found.scores = _only(found.scores, asked)
    batch = _scored(models, metrics, keep, loading, quiet, imports) if models else None
    if batch is not None:
        found.scores += batch.done
        if batch.failed and not found.scores:
            return 1
    atlas = atlas_of(found, title=title, command=as_given(), named=top)
    for note in atlas.get("notes", []):
        voice.note(note)
    views: dict[str, str] = {}
    if examples and batch is not None:
        views = _add_examples(atlas, models, batch, loading, voice, out)
    table = found.table
    files = [path.name for path in numbers] if len(table) else []
    page = atlas_page(atlas, budget=round(budget * _MB), beside=files, views=views).encode()
    write_atomically(out, page)
    if files:
        table.to_csv(numbers[0])
        table.to_json(numbers[1])
    written = f"; its numbers in {' and '.join(files)}" if files else ""
    written += f"; the attention of its heads in {' and '.join(views.values())}" if views else ""
    voice.note(f"{out}: {len(page) / _MB:.2f} MB{written}")
    return int(bool(batch is not None and batch.failed))


def _scored(
    models: Sequence[str],
    metrics: tuple[str, ...],
    keep: Path,
    loading: Loading,
    quiet: bool,
    imports: tuple[str, ...],
) -> ScoreRun:
    """Score models, and keep their scores."""
    from interp.cli.batch import ScoreRun
    from interp.cli.progress import Voice
    from interp.cli.stopping import goes_on

    loading.require_device()
    import_first(imports)
    batch = ScoreRun.prepare(
        metrics=metrics, out=keep, loading=loading, quiet=quiet, prompt_file=None, context=None,
        null="auto", seed=0, batch_size=16, engine="auto",
    )  # fmt: skip
    with goes_on(Voice(quiet=quiet, debug=False), keep):
        batch.scored(source_labels(models))
    return batch


def _add_examples(
    atlas: Any, models: Sequence[str], batch: ScoreRun, loading: Loading, voice: Any, out: Path
) -> dict[str, str]:
    """Load each scored model again, and add its examples to the cards and write its attention.

    Returns:
        The addresses of the attention views, by the id of their model.
    """
    from interp.core.errors import InterpError
    from interp.report.atlas.attention import write_view
    from interp.report.atlas.from_model import add_model

    views: dict[str, str] = {}
    for source, name in source_labels(models).items():
        if name in batch.failed:
            continue
        try:
            model = loading.load(source, name)
            add_model(atlas, model)
            views |= write_view(atlas, model, out)
        except InterpError as error:  # the scores are still worth a page
            text = f"{name}: no examples of its heads: {error}"
            atlas.setdefault("notes", []).append(text)
            voice.note(text)
    return views


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
    """Return True for a table of scores or a folder of results, False for a model.

    Raises:
        OptionError: it is a file of another kind, or an empty folder.
    """
    if path.is_file():
        if path.suffix.lower() in TABLES:
            return True
        raise OptionError(
            f"{path} is neither a table of scores ({', '.join(TABLES)}) nor a model folder"
        )
    if not path.is_dir() or (path / "config.json").exists():
        return False
    from interp.report.atlas.folder import holds_results

    if holds_results(path):
        return True
    if not any(path.iterdir()):
        raise OptionError(
            f"{path} is empty; give a folder that a command wrote with --out, such as "
            f"`interp score MODEL --out {path}`"
        )
    return False


def _only(tables: Sequence[HeadTable], names: Sequence[str]) -> list[HeadTable]:
    """Select the rows of these metrics; each must be in one of the tables."""
    from interp.core.errors import UnknownName

    there = list(dict.fromkeys(m for table in tables for m in table.metrics))
    wanted: set[str] = set()
    for name in names:
        found = {m for m in there if name in (m, m.partition(":")[0])}
        if not found:
            raise UnknownName("metric", name, there)
        wanted |= found
    kept = [(table, [m for m in table.metrics if m in wanted]) for table in tables]
    return [table.where(metric=metrics) for table, metrics in kept if metrics]
