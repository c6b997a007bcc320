"""Shared options of the causal commands: the task, its game, and the run over models."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.causal.task_rows import MEASURES, task_rows
from interp.cli.causal_notes import explained_notes
from interp.cli.context import COMMAND
from interp.cli.each import each_model
from interp.cli.loading import (
    Loading,
    import_first,
    loading_options,
    remote_option,
    source_labels,
    tp_plan_option,
)
from interp.cli.progress import Voice
from interp.cli.reference import reference_option, reference_prompts, require_reference
from interp.cli.value_types import OUT_FOLDER
from interp.cli.written import folder_for, kept_folder, model_folder
from interp.core.errors import StoreError
from interp.core.json_document import rows_text
from interp.core.steps import finishing

if TYPE_CHECKING:
    from interp.causal.importance import Importance
    from interp.causal.task import Task
    from interp.core.table import HeadTable
    from interp.model.model import Model

Tell = Callable[[str, int, int], None]
NOT_KEPT = ("gates",)  # commands whose work is not of coalitions
SAFE = "the same command resumes after the last finished coalition"
KINDS = ("zero", "mean-batch", "mean-position", "mean-dataset", "resample", "uniform-attention")


@dataclass
class ModelOutcome:
    """Outcome for one model: its scores, and the text to print."""

    tables: list[HeadTable] = field(default_factory=list)
    text: str = ""
    frame: Any = None  # rows of a result that is not a table of heads


Work = Callable[["Model", "Task", dict[str, Any], Tell], ModelOutcome]


@dataclass
class Causal:
    """State of one causal command: the requested task and game, and the run over all models."""

    command: str
    loading: Loading
    out: Path | None
    voice: Voice
    form: str | None
    task: str
    measure: str | None
    n: int | None
    longest: int | None
    seed: int
    game: dict[str, Any]
    reference: Path | None = None
    found: list[ModelOutcome] = field(default_factory=list)

    def run(self, sources: Sequence[str], work: Work) -> int:
        """Do the work for every model, print and write; return the exit code.

        Raises:
            OptionError: the device does not exist.
            StoreError: the output folder cannot be written.
        """
        self.loading.require_device()
        if self.out is not None:
            from interp.core.store import Store

            Store(self.out).prepare()
            kept_folder(self.out)
        code = 0
        try:
            failed = each_model(
                source_labels(sources), self.voice, lambda s, n: self._model(s, n, work)
            )
            code = int(bool(failed))
            if failed and len(sources) > 1:
                self.voice.error(
                    f"{len(failed)} of {len(sources)} models failed: {', '.join(failed)}"
                )
        except KeyboardInterrupt:
            code = 130
            kept = f"; {SAFE}" if self._resumes else ""
            if self.out is None and self.command not in NOT_KEPT:
                kept = "; with --out the run could resume"
            self.voice.error(f"interrupted{kept}")
        except StoreError as error:
            code = 1
            self.voice.error(str(error), error)
        self._end(code)
        return code

    @property
    def _resumes(self) -> bool:
        """True if an interrupted run leaves what it finished."""
        return self.out is not None and self.command not in NOT_KEPT

    def _model(self, source: str, name: str, work: Work) -> None:
        from interp.causal.task_file import make_task
        from interp.model.check import check_model

        with self.voice.bars(name) as tell:
            tell("loading", 0, 1)
            model = self.loading.load(source, name)
            check_model(model).require()
            tell("loading", 1, 1)
            task = make_task(
                model, self.task, measure=self.measure, n=self.n, longest=self.longest,
                seed=self.seed,
            )  # fmt: skip
            options = dict(self.game)
            if self.out is not None:
                options["ledger"] = kept_folder(self.out)
            options |= reference_prompts(self.reference, model)
            with finishing():
                found = work(model, task, options, tell)
        self.found.append(found)
        if self.form is None:
            click.echo(found.text)

    def announce(self, model: Model) -> Callable[[Any], None]:
        """Report the estimated time and memory before a run."""
        return lambda estimate: self.voice.note(f"{model.name}: {estimate}")

    def folder(self, model: Model, task: Task, file: str, **settings: Any) -> Path | None:
        """Return the folder for this model's files; None without --out.

        Args:
            model: the model.
            task: the task.
            file: one of the files, which must not replace that of another run.
            settings: further settings that the files depend on, beside the model, the task and the
                game.
        """
        if self.out is None:
            return None
        reference = None if self.reference is None else self.reference.read_bytes()
        about = {"weights": model.content_hash, "task": task.about(), "game": self.game} | settings
        if reference is not None:
            about["reference"] = hashlib.sha256(reference).hexdigest()
        folder = folder_for(self.out, model.name, file, about)
        if folder != (plain := model_folder(self.out, model.name)):
            self.voice.note(f"{folder}: {file}; the file of other settings remains in {plain}")
        return folder

    def _end(self, code: int) -> None:
        from interp.core.table import HeadTable

        tables = [t for found in self.found for t in found.tables]
        frames = [found.frame for found in self.found if found.frame is not None]
        if self.form is not None and frames:
            import pandas as pd

            click.echo(rows_text(pd.concat(frames, ignore_index=True), self.form), nl=False)
        elif self.form is not None:
            table = HeadTable.concat(tables)
            click.echo(table.to_json() if self.form == "json" else table.to_csv(), nl=False)
        if self.out is not None and code in (0, 1) and tables:
            self._write(self.out, HeadTable.concat(tables))

    def _write(self, folder: Path, table: HeadTable) -> None:
        from interp.core.merge import merged
        from interp.report import write_report

        names = [f"{self.command}.{end}" for end in ("parquet", "csv", "html")]
        table, notes = merged(_before(folder / names[0]), table)
        for note in notes:
            self.voice.note(f"{folder / names[0]}: {note}")
        table.to_parquet(folder / names[0])
        table.to_csv(folder / names[1])
        command = shlex.join(["interp", *click.get_current_context().meta[COMMAND]])
        write_report(
            table, folder / names[2], title=f"interp {self.command}", command=command,
            beside=names[:2],
        )  # fmt: skip
        self.voice.note(f"{folder}: {', '.join(names)}")


def _before(path: Path) -> list[HeadTable]:
    """Return the results of earlier commands; a damaged file is moved aside."""
    from interp.core.files import set_aside
    from interp.core.table import HeadTable

    if not path.exists():
        return []
    try:
        return [HeadTable.from_parquet(path)]
    except StoreError as error:
        set_aside(path, error.__cause__ or error)
        return []


def importance_lines(importances: Sequence[Importance], top: int) -> str:
    """Format one model: the first players of each importance, with error, null and notes."""
    from interp.core.columns import prompt_counts, with_error
    from interp.core.sign import SIGN

    rows, notes = [("score", "head", "value", "null", "n", "unit")], []
    for found in importances:
        name = found.metric.partition(":")[0]
        frame = found.table.to_pandas().set_index(["stack", "layer", "head"])
        for at, player in enumerate(found.order()[:top]):
            site, head = found.players.heads_of(player)[0]
            row = frame.loc[(site.stack, site.layer, head)]
            null = "" if math.isnan(row["null"]) else with_error(row["null"], row["null_sem"])
            label = found.players.labels[player]
            score = with_error(row["score"], row["sem"])
            about = (name, f"{row['unit'].partition(' (+')[0]}, {_means(found)}")
            about = about if at == 0 else ("", "")
            n = prompt_counts(row["n"], row["clusters"])
            rows.append((about[0], label, score, null, n, about[1]))
        notes += [f"{name}: {sentence}" for sentence in explained_notes(found)]
    width = [max(len(row[at]) for row in rows) for at in range(5)]
    lines = [
        "  ".join(f"{cell:<{w}}" for cell, w in zip(row, [*width, 0], strict=True)).rstrip()
        for row in rows
    ]
    model = importances[0].table.models[0]
    sign = [] if all(found.magnitude for found in importances) else [SIGN]
    return "\n".join([model, *(f"  {line}" for line in [*lines, *sign, *notes]), ""])


def _means(found: Importance) -> str:
    """Return the meaning of a score, to follow its unit."""
    from interp.causal.comparison.questions import METHODS, method_of

    return METHODS[method_of(found.metric)].means


def causal_options(function: Callable) -> Callable:
    """Add the options; the command receives `causal: Causal` and `top`."""

    @wraps(function)
    def command(**options: Any) -> Any:
        task_rows(options["task"], options["measure"])  # refused before torch is imported
        require_reference(options["kind"], options["reference"])
        import_first(options.pop("imports"))
        game = {
            "kind": options.pop("kind"),
            "players": options.pop("players"),
            "max_tokens": options.pop("max_tokens"),
            "seed": options["seed"],
        }
        for name in ("stack", "heads", "without"):
            given = options.pop(name)
            if given is not None:
                game[name] = given if name == "stack" else parse_heads_option(given)
        context = click.get_current_context()
        voice = Voice(quiet=options.pop("quiet"), debug=bool(context.meta.get("interp.debug")))
        of_task = {k: options.pop(k) for k in ("task", "measure", "n", "longest", "seed")}
        shared = {k: options.pop(k) for k in ("loading", "out", "form", "reference")}
        shared["loading"].require_storable(shared["out"])
        causal = Causal(str(context.info_name), voice=voice, game=game, **of_task, **shared)
        return function(causal=causal, **options)

    for option in reversed(_OPTIONS):
        command = option(command)
    return remote_option(tp_plan_option(loading_options(command)))


def parse_heads_option(text: str) -> list[tuple[int, int]]:
    """Parse heads such as `L1H0,L1H3`; raise OptionError if they are malformed."""
    from interp.core.head import Head

    return [(h.layer, h.head) for h in map(Head.parse, text.split(","))]


_OPTIONS = (
    click.option(
        "--task", default="repeats", show_default=True, metavar="NAME|FILE",
        help="The task: 'repeats' (loss on the second copy of random tokens), a .txt file (a "
            "prompt per line), a .jsonl file (prompt, answer, wrong, corrupted, position) "
        "or a .py file with task(model).",
    ),
    click.option(
        "--measure", type=click.Choice(MEASURES),
        help="Measure computed from the logits; by default the one that fits the answers in the "
            "task file.",
    ),
    click.option("-n", "n", type=click.IntRange(1), help="Number of prompts; by default all of a "
        "file."),
    click.option("--longest", type=click.IntRange(2), metavar="N", help="Maximum tokens per "
        "prompt."),
    click.option(
        "--kind", default="zero", show_default=True, type=click.Choice(KINDS),
        help="Replacement for the output of an ablated head.",
    ),
    reference_option(),
    click.option(
        "--players", default="heads", show_default=True,
        type=click.Choice(["heads", "kv_groups", "layers"]), help="Unit that is ablated together.",
    ),
    click.option("--stack", help="Stack whose heads are included, such as encoder, decoder or "
        "cross."),
    click.option("--heads", metavar="L0H1,...", help="Heads to include; all by default."),
    click.option("--without", metavar="L0H1,...", help="Heads that are ablated in every run."),
    click.option("--seed", default=0, show_default=True, help="Seed of prompts and of all "
        "sampling."),
    click.option(
        "--max-tokens", default=1024, show_default=True, type=click.IntRange(1),
        help="Maximum tokens per forward pass; memory grows with it.",
    ),
    click.option(
        "-o", "--out", type=OUT_FOLDER, metavar="DIR",
        help="Folder for results and finished forward passes; the same command resumes an "
            "interrupted run.",
    ),
    click.option("--json", "form", flag_value="json", help="Print only JSON."),
    click.option("--csv", "form", flag_value="csv", help="Print only CSV."),
    click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes."),
)  # fmt: skip
