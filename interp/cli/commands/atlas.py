"""Command `interp atlas`: one page of a model's heads, their roles, and all results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.bundled import own_texts
from interp.cli.making import command
from interp.cli.name_types import STORED_METRIC_NAMES
from interp.cli.run import Input, Run
from interp.cli.stored import parted
from interp.cli.value_types import OUT_FOLDER
from interp.cli.vocabulary import ABOVE_0, FROM_1, Spelling
from interp.cli.written import OutFile, as_given, beside
from interp.cli.wrong_models import require_one_known
from interp.core.errors import InterpError, OptionError
from interp.core.registry import METRICS
from interp.core.result_folder import kept_folder
from interp.model.loading import source_labels

if TYPE_CHECKING:
    from interp.heads.sweep.scored_models import ScoreSweep
    from interp.report.atlas.folder import Contents

GROUP = "Look"
NUMBERS = (".csv", ".json")
_MB = 1_000_000


def _check(run: Run) -> None:
    """Refuse to overwrite an input, and metrics that do not exist."""
    for source in run.sources:
        path = Path(source).expanduser()
        for number in (beside(run.out, suffix) for suffix in NUMBERS):
            inside = path.is_dir() and number.exists() and number.resolve().parent == path.resolve()
            if inside or number.resolve() == path.resolve():
                raise OptionError(
                    f"the page's numbers would overwrite {number}; give --out another name"
                )
    models = parted(run.sources)[1]
    require_one_known(models)
    if run.values["corpus"] and not models:
        raise OptionError(
            "--corpus needs a MODEL to run on its documents; a stored profile has its own corpus"
        )
    if models:
        for each in run.values["metrics"]:
            METRICS.check(each)


def _scored(run: Run, models: Sequence[str], metrics: list[str], resume: Path) -> ScoreSweep:
    """Score models, and keep their scores."""
    from interp.heads.sweep.scored_models import ScoreSweep

    batch = ScoreSweep.prepare(metrics=metrics, out=resume, loading=run.loading, voice=run.voice)
    batch.run(source_labels(models))
    return batch


def _profiled(
    run: Run,
    found: Contents,
    names: Mapping[str, str],
    corpus: Any,
    resume: Path,
    options: Mapping[str, Any],
) -> None:
    """Profile models on a corpus, and keep the profiles with the scores.

    A model that cannot be profiled gets a note, beside others that can.
    """
    from interp.core.result_folder import model_folder
    from interp.profiles.run import profile

    failed = []
    for source, name in names.items():
        try:
            model = run.loading.load(source, name)
            one = profile(model, corpus, resume=kept_folder(resume), **options)
        except InterpError as error:
            failed.append(error)
            found.notes.append(f"{name}: not profiled: {error}")
            continue
        folder = model_folder(resume, name)
        folder.mkdir(parents=True, exist_ok=True)
        one.save(folder / "profile.json")
        found.profiles.append(one)
    if failed and not found.profiles:
        raise failed[0]


@command(
    over="sources",
    arguments=("RESULTS_OR_MODEL...",),
    inputs={"resume": Input(lambda run: run.values["resume"], ("resume",))},
    options={
        "metrics": Spelling(type=STORED_METRIC_NAMES, default=()),
        "resume": Spelling(type=OUT_FOLDER, metavar="DIR"),
        "top": Spelling(type=FROM_1),
        "corpus": Spelling(
            help="File or folder of documents on which each MODEL is profiled, as by `interp "
            "profile`. Repeatable; without it only a MODEL that comes with texts is profiled."
        ),
        "max_mb": Spelling(type=ABOVE_0, metavar="MB"),
    },
    out=OutFile("atlas.html", beside=NUMBERS),
    check=_check,
    example="interp atlas results gpt2 -o atlas.html",
)
def atlas(
    run: Run,
    sources: tuple[str, ...],
    metrics: Any = (),
    *,
    resume: Path = Path("results"),
    top: int = 4,
    corpus: Any = None,
    n_documents: int = 400,
    max_mb: float = 10.0,
    progress: Any = None,
) -> None:
    """Write the atlas of heads: one page of roles, cards and all results.

    Each argument is a folder that `interp` commands wrote with --out, a table of scores (.parquet,
    .csv, .json), or a MODEL, which is scored first. With --corpus every MODEL is profiled too, and
    without it bundled:stories, which comes with texts; the page then opens with what its heads do
    on that text, as for a folder with a profile. Everything in a folder is on the page: profiles,
    scores, roles of heads, ablations, circuits, pruning, checks, trees, attributions, comparisons.
    The page is one file that works offline.

    Args:
        sources: results and models.
        metrics: for results, show only these metrics; for models, the metrics to score, as for
            `interp score`.
        resume: folder that stores the scores of a MODEL, so that another run can resume.
        top: number of heads to name in the sentence of a role.
        corpus: the documents on which each MODEL is profiled, as by `interp profile`.
        n_documents: number of random documents of the corpus.
        max_mb: maximum size of the page in MB; a larger one is drawn with less detail, which the
            page states.
    """
    from interp.core.files import write_atomically
    from interp.report.atlas.build import atlas_of, contents_of
    from interp.report.atlas.page import atlas_page
    from interp.report.atlas.sources import add_examples, only_metrics

    results, models = parted(sources)
    contents = contents_of([Path(source).expanduser() for source in results])
    if results and metrics:
        contents.scores = only_metrics(contents.scores, metrics)
    batch = _scored(run, models, metrics, resume) if models else None
    if batch is not None:
        contents.scores += batch.done
        run.failed = len(batch.failed)
        if batch.failed and not contents.scores:
            return
    profiled = models if corpus is not None else [x for x in models if own_texts(x)]
    _profiled(
        run,
        contents,
        source_labels(profiled),
        corpus,
        resume,
        {"n_documents": n_documents, "progress": progress},
    )
    document = atlas_of(contents, command=as_given(), named=top)
    for note in document.get("notes", []):
        run.voice.note(note)
    views: dict[str, Any] = {}
    if batch is not None:
        named = {n: s for s, n in source_labels(models).items() if n not in batch.failed}
        load = run.loading.load
        views, notes = add_examples(document, named, lambda name: load(named[name], name), run.out)
        for note in notes:
            run.voice.note(note)
    table = contents.table
    numbers = [beside(run.out, suffix) for suffix in NUMBERS] * bool(len(table))
    files = [path.name for path in numbers]
    page = atlas_page(document, budget=round(max_mb * _MB), beside=files, views=views).encode()
    write_atomically(run.out, page)
    for path in numbers:
        table.save(path)
    written = f"; its numbers in {' and '.join(files)}" if files else ""
    files = " and ".join(view["file"] for view in views.values())
    written += f"; the attention of its heads in {files}" if files else ""
    run.voice.note(f"{run.out}: {len(page) / _MB:.2f} MB{written}")
