"""Run of a command made from a function: its models, the inputs of the function, its outputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.bundled import usual_task
from interp.cli.context import command_name
from interp.cli.progress import Voice
from interp.cli.results import merged_scores, print_of_each, results_in, stored_before
from interp.cli.stopping import INTERRUPTED
from interp.cli.wrapping import print_rows, print_text
from interp.cli.written import as_given
from interp.core.errors import StoreError
from interp.core.memory import return_freed
from interp.core.result_folder import folder_for, model_folder
from interp.core.steps import finishing
from interp.model.loading import Loading, source_labels
from interp.model.sources.folder import is_address

if TYPE_CHECKING:
    from interp.core.table import HeadTable
    from interp.model.model import Model

RESUMES = {
    True: "the same command resumes from the finished steps",
    False: "nothing is stored without --out, which allows the same command to resume",
}
"""Sentence after an interrupt, with --out and without."""


@dataclass(frozen=True)
class Input:
    """A parameter of functions that a run provides; None leaves the function's default.

    Args:
        make: makes the argument for the present model.
        words: words of the vocabulary from which it is made.
        check: refuses these before torch is imported.
    """

    make: Callable[[Run], Any]
    words: tuple[str, ...] = ()
    check: Callable[[Run], None] = lambda run: None


@dataclass
class CommandDeclaration:
    """Declaration of a command; see `command`.

    Args:
        given: parameters that options give.
        printing: parameters of the printed form that options give.
        inputs: parameters that the run provides.
        served: called for the address of a server in place of a model; false where it failed.
    """

    target: str | Callable[..., Any]
    over: str
    arguments: tuple[str, ...]
    usual: str
    files: tuple[str, ...]
    out: str | tuple[str, ...] | click.ParamType | None
    text: str
    check: Callable[[Run], None] | None
    each: Callable[[Run, list[Any]], None] | None
    after: Callable[[Run], int | None] | None
    checked: bool = True
    served: Callable[[Run, str], bool] | None = None
    given: list[str] = field(default_factory=list)
    printing: set[str] = field(default_factory=set)
    inputs: dict[str, Input] = field(default_factory=dict)

    @property
    def in_folder(self) -> bool:
        """True if --out is a folder for results and finished steps."""
        return self.out in ("folder", "document", "tables")

    @property
    def resumes(self) -> bool:
        """True if finished steps are stored under --out."""
        return bool({"resume", "out"} & {*self.inputs})

    def function(self) -> Callable[..., Any]:
        """Return the function, imported."""
        if callable(self.target):
            return self.target
        module, _, name = self.target.partition(":")
        return getattr(import_module(module), name)


@dataclass
class Run:
    """One run of a command.

    Args:
        declared: the declaration of the command.
        values: value of each option, by the name of its parameter.
        loading: how models are loaded.
        voice: prints progress, notes and errors.
        out: where results are written, if anywhere.
        form: "json" or "csv" if only rows are printed.
    """

    declared: CommandDeclaration
    values: dict[str, Any]
    loading: Loading
    voice: Voice
    out: Any = None  # a folder, a file, or files by their ending
    form: str | None = None
    sources: tuple[str, ...] = ()
    results: list[tuple[Any, list[Any]]] = field(default_factory=list)
    tables: list[HeadTable] = field(default_factory=list)
    interrupted: str = ""  # where what is finished can be found
    failed: int = 0  # parts of the work that failed, each reported
    made: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The present model."""
        return self.made["model"]

    def load(self, source: str) -> Model:
        """Return another model than the present one, checked."""
        [(path, name)] = source_labels([source]).items()
        return self.loading.checked(path, name, self.made.get("progress", lambda *_: None))

    def stated(self, name: str) -> bool:
        """Return True if an option was given on the command line."""
        source = click.get_current_context().get_parameter_source(name)
        return source is not None and source.name != "DEFAULT"

    def check(self) -> None:
        """Refuse what does not fit, before torch is imported; raises InterpError."""
        if not self.sources and self.declared.over in ("model", "models"):
            self.take_usual()
        of_repeats = any(self.values.get(name) for name in ("measure", "max_length"))
        if "task" in self.values and not (of_repeats or self.stated("task")):
            self.values["task"] = usual_task(*self.sources) or self.values["task"]
        for each in self.declared.inputs.values():
            each.check(self)
        if self.out is not None and self.declared.in_folder:
            self.loading.require_storable(self.out)
        if self.declared.check is not None:
            self.declared.check(self)

    def take_usual(self) -> None:
        """Take the model that is used if none is given, and say so."""
        [source] = self.sources = (self.declared.usual,)
        if self.form is None:
            self.voice.note(f"no MODEL given: {source}; others: interp list models")

    def announced(self) -> str:
        """Return the name of the command and of the models that it loads first."""
        models = self.sources or (self.declared.usual,)
        which = models[0] if len(models) == 1 else f"{len(models)} models"
        return f"{command_name(click.get_current_context())}: loading {which}"

    def go(self) -> int:
        """Call the function for every model, print and write; return the exit code.

        Raises:
            InterpError: the command was wrong; with one model, also what the function raises.
        """
        self.loading.require_device()
        if self.out is not None and self.declared.in_folder:
            from interp.core.store import Store

            Store(self.out).prepare()
        code = 0
        try:
            if self.declared.over == "nothing":
                self._call()
            elif self.declared.over == "model":
                [(source, name)] = source_labels(self.sources).items()
                self._one(source, name)
            elif self.declared.over != "models":
                self._together()
            else:
                from interp.heads.sweep.each import each_model, failure_count

                failed = each_model(source_labels(self.sources), self.voice, self._one)
                code = int(bool(failed))
                if failed and len(self.sources) > 1:
                    self.voice.error(failure_count(failed, self.sources))
        except KeyboardInterrupt:
            code = INTERRUPTED
            resuming = f"; {RESUMES[self.out is not None]}" if self.declared.resumes else ""
            self.voice.error(f"interrupted{self.interrupted}{resuming}")
        except StoreError as error:
            if self.declared.over != "models":
                raise
            code = 1
            self.voice.error(str(error), error)
        self._end(code)
        if self.declared.after is not None and self.results and code in (0, 1):
            code = self.declared.after(self) or code
        return code or int(self.failed > 0)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the function for the present model."""
        values = {
            name: self.values[name]
            for name in self.declared.given
            if self.values.get(name) is not None
        }
        for name, each in self.declared.inputs.items():
            value = each.make(self)
            if value is not None:
                values[name] = self.made[name] = value
        return values

    def _one(self, source: str, name: str) -> None:
        if self.declared.served is not None and is_address(source):
            self.failed += not self.declared.served(self, source)
            return
        with self.voice.bars(name) as progress:
            loading = progress if self.declared.over == "models" else lambda *_: None
            load = self.loading.checked if self.declared.checked else self.loading.load
            self.made = {"progress": progress, "model": load(source, name, loading)}
            self._call()

    def _together(self) -> None:
        """Load all models, unless the function does, and call it once."""
        models = {}
        for source, name in source_labels(self.sources).items():
            if self.declared.over == "all":
                with self.voice.bars(name) as progress:
                    models[source] = self.loading.checked(source, name, progress)
        self.made = {"models": [models[s] for s in self.sources if models]}
        if "progress" not in self.declared.inputs:
            return self._call()
        with self.voice.bars(command_name(click.get_current_context())) as progress:
            self.made["progress"] = progress
            return self._call()

    def _call(self) -> None:
        arguments = self.arguments()
        with finishing(keep="resume" in self.values):  # where a folder for them is offered
            returned = self.declared.function()(**arguments)
            return_freed()
            results = []
            try:
                for group in returned if isinstance(returned, Iterator) else [returned]:
                    shown = results_in(group)
                    results += shown
                    self._show(shown)  # a step that follows may be stopped
            finally:
                if results:
                    self.results.append((self.made.get("model"), results))
            files = self.declared.files
            if files and results and (folder := self.folder(files[0])) is not None:
                self._save(results[0], folder, files)
        if self.declared.each is not None:
            self.declared.each(self, results)
        if self.declared.over != "nothing":
            self.tables += filter(None, map(merged_scores, results))

    def _show(self, results: list[Any]) -> None:
        from interp.report.printed import printed

        if self.form is None and results:
            name = self.model.name if self.declared.over == "models" else ""
            if text := printed(results, name, self.declared.text, **self.values):
                print_text(text)

    def write(self, result: Any, *files: str) -> None:
        """Write a result to files in the present model's folder, if --out was given."""
        if self.out is not None:
            self._save(result, model_folder(self.out, self.model.name), files)

    def _save(self, result: Any, folder: Path, files: Sequence[str]) -> None:
        for file in files:
            result.save(folder / file)
            return_freed()  # a file takes several times its size
        self.voice.note(f"{folder}: {', '.join(files)}")

    def say(self, text: str) -> None:
        """Print a text, unless only rows are asked for."""
        if self.form is None:
            print_text(text)

    def announce(self, estimate: Any) -> None:
        """Report the estimated time and memory of a step before it runs."""
        self.voice.note(f"{self.model.name}: {estimate}")

    def folder(self, file: str, merged: tuple[str, ...] = ()) -> Path | None:
        """Return the folder for the present model's files; None without --out.

        Args:
            file: one of the files, which must not replace that of another run.
            merged: parameters for whose different values the files of several runs are merged.
        """
        if self.out is None:
            return None
        about: dict[str, Any] = {"weights": self.model.content_hash}
        if hasattr(self.made.get("task"), "about"):
            about["task"] = self.made["task"].about()
        about |= {k: self.values.get(k) for k in self.declared.given if k not in merged}
        reference = self.values.get("reference")
        if reference is not None:
            about["reference"] = hashlib.sha256(reference.read_bytes()).hexdigest()
        folder = folder_for(self.out, self.model.name, file, about)
        if folder != (plain := model_folder(self.out, self.model.name)):
            self.voice.note(f"{folder}: {file}; the file of other settings remains in {plain}")
        return folder

    def _end(self, code: int) -> None:
        named = [(model.name if model else "", results) for model, results in self.results]
        every = [(name, result) for name, results in named for result in results]
        if self.declared.over == "nothing":
            print_of_each(self.form, every)
            return
        if self.declared.out in ("document", "tables"):
            return
        from interp.core.table import HeadTable

        merges = not every or merged_scores(every[0][1]) is not None
        if self.form is not None and merges:
            table = HeadTable.concat(self.tables)
            print_rows(table.to_json() if self.form == "json" else table.to_csv())
        elif self.form is not None:
            print_of_each(self.form, every)
        if self.out is None or code not in (0, 1) or not every:
            return
        if self.declared.out == "file":
            (HeadTable.concat(self.tables) if merges else every[-1][1]).save(self.out)
            self.voice.note(str(self.out))
        elif self.declared.out == "folder" and self.tables:
            self._write(self.out, HeadTable.concat(self.tables))

    def _write(self, folder: Path, table: HeadTable) -> None:
        from interp.core.merge import merged
        from interp.report import write_report

        name = command_name(click.get_current_context())
        names = [f"{name}.{end}" for end in ("parquet", "csv", "html")]
        table, notes = merged(stored_before(folder / names[0]), table)
        for note in notes:
            self.voice.note(f"{folder / names[0]}: {note}")
        table.to_parquet(folder / names[0])
        table.to_csv(folder / names[1])
        write_report(
            table, folder / names[2], title=f"interp {name}", command=as_given(), beside=names[:2]
        )
        self.voice.note(f"{folder}: {', '.join(names)}")


def say_notes(run: Run) -> None:
    """Report the notes of all results."""
    for _, results in run.results:
        for result in results:
            for about, note in result.notes.items():
                text = f"{note:.3g}" if isinstance(note, float) else note
                run.voice.note(f"{about}: {text}")
