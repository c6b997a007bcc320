"""Scoring of many models one after another, storing finished results as it goes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from interp.cli.between import write_curves
from interp.cli.compiling import compile_while_loading, guessed_lengths, why_slow
from interp.cli.each import each_model
from interp.cli.loading import Loading
from interp.cli.picture_prompts import PicturePrompts
from interp.cli.progress import Voice, say_scores
from interp.cli.segment_metrics import with_their_segments
from interp.core.declaration import split_names
from interp.core.errors import OptionError, PromptError, StoreError
from interp.core.locks import locked
from interp.core.prompts import Prompts, bos_id, from_file, repeats
from interp.core.registry import METRICS
from interp.core.shards import Shard
from interp.core.store import Key, Store
from interp.core.table import HeadTable
from interp.heads.declaration import BoundAnalysis
from interp.heads.estimate import estimate_score, require_memory
from interp.heads.prompt_pieces import PromptPieces
from interp.heads.score_keys import score_keys
from interp.heads.scoring import default_prompts, score_each, why_not
from interp.heads.scoring_in_pieces import score_pieces
from interp.model.check import check_model
from interp.model.content import maps_of
from interp.model.model import Model
from interp.model.random_weights import DRAWS, KeptNulls, RandomWeights
from interp.report.printed.scores import scored_text
from interp.report.printed.verdict import models_text

SAFE = "run the same command again to resume"
LONG = 2048  # number of tokens above which a run is announced


@dataclass
class ScoreRun:
    """State of one `interp score`: its request, and the results so far."""

    metrics: list[BoundAnalysis]
    loading: Loading
    store: Store | None
    voice: Voice
    prompt_file: Path | None
    context: int | None
    null: Any
    seed: int
    batch_size: int
    engine: str
    null_draws: int = DRAWS
    null_cache: bool = True
    by_cluster: bool = False
    by: str = "end"
    listed: int | None = None  # heads to list per metric after the verdict; None for no list
    done: list[HeadTable] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    kept: int = 0
    computed: int = 0
    keys: list[Key] = field(default_factory=list)
    imports: tuple[str, ...] = ()
    pictures: PicturePrompts | None = None
    texts: tuple[str, ...] = ()
    asked: int | None = None  # number of metrics of the whole command, in a worker
    jobs: int = 1
    shard: Shard | None = None
    part: Shard | None = None  # of the prompts, in a worker
    ray: str | None = None  # address of a Ray cluster
    signs: bool = False  # it was said what brackets and ± mean
    slow: bool = False  # it was said that numba is missing

    @property
    def single(self) -> bool:
        """True if the whole command asks for one metric."""
        return (self.asked or len(self.metrics)) == 1

    @classmethod
    def prepare(
        cls,
        *,
        metrics: Sequence[str],
        out: Path | None,
        quiet: bool,
        prompt_file: Path | None,
        prompt_values: bool = True,
        **options: Any,
    ) -> ScoreRun:
        """Check the whole command before hours of work.

        Raises:
            UnknownName, OptionError: a metric, option or prompt file does not exist.
            StoreError: the output folder cannot be written.
        """
        texts = [text for given in metrics for text in split_names(given)]
        texts = METRICS.expand(texts or METRICS.usual())
        bounds = [METRICS.parse(text) for text in texts]
        labels = [b.label for b in bounds]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise OptionError(f"a metric is given twice: {', '.join(twice)}; name each only once")
        if prompt_file is not None and not prompt_file.is_file():
            raise OptionError(f"{prompt_file} is not a file; --file expects a text file")
        store = None if out is None else Store(out, prompt_values=prompt_values)
        if store is not None:
            store.prepare()
        debug = bool(click.get_current_context().meta.get("interp.debug"))
        voice = Voice(quiet=quiet, debug=debug)
        if prompt_file is not None or options.get("context") is not None:
            from interp.cli.own_prompts import tell_own_prompts

            tell_own_prompts(bounds, voice)
        if options.get("shard") is not None and store is None:
            raise OptionError("--shard needs --out, the folder that all jobs write to")
        if options.get("ray") is not None:
            from interp.cli.ray_tasks import require_cluster

            require_cluster(options["ray"], store)
        options["texts"] = tuple(texts)
        return cls(bounds, store=store, voice=voice, prompt_file=prompt_file, **options)

    def run(self, sources: Mapping[str, str], *, form: str | None) -> int:
        """Score all models, print and write; return the exit code."""
        code = 0
        try:
            self._all(sources, printing=form is None)
        except KeyboardInterrupt:
            code = 130
        except StoreError as error:  # later results could not be stored either
            self.voice.error(str(error), error)
            code = 1
        table = HeadTable.concat(self.done)
        if form is not None:
            click.echo(table.to_json() if form == "json" else table.to_csv(), nl=False)
        elif said := models_text(table):
            click.echo(said)
        if code == 130:
            self.voice.error(f"interrupted; {self._safe()}")
        elif self.store is not None and code == 0 and len(table):
            from interp.report.summary import FILES, write_summary

            write_summary(self.store)
            files = ["roles.csv"] * (len(table.models) > 1) + [*FILES]
            self.voice.note(f"{self.store.folder}: {', '.join(files)} (open it in a browser)")
            if len(sources) > 2:  # the fewest checkpoints of a curve
                write_curves(self.voice, self.store.folder, sources, table)
        if self.failed:
            self.voice.error(
                f"{len(self.failed)} of {len(sources)} models failed: {', '.join(self.failed)}"
            )
        return code or int(bool(self.failed))

    def scored(self, sources: Mapping[str, str]) -> HeadTable:
        """Score all models without printing; `failed` names the models that could not be scored.

        Raises StoreError if results cannot be stored.
        """
        self._all(sources, printing=False)
        return HeadTable.concat(self.done)

    def _all(self, sources: Mapping[str, str], *, printing: bool) -> None:
        if self.jobs > 1 or self.shard is not None or self.ray is not None:
            from interp.cli.sweep import run_sweep

            return run_sweep(self, sources, printing=printing)

        def work(source: str, name: str) -> None:
            before = len(self.done)
            try:
                self.score_model(source, name)
            finally:
                if printing and len(self.done) > before:
                    table = HeadTable.concat(self.done[before:])
                    self.signs = say_scores(
                        scored_text(table, self.listed, self.by), self.voice, known=self.signs
                    )

        lengths = guessed_lengths(self.prompt_file, self.context)
        patterned = any(b.patterned() for b in self.metrics)
        if patterned and self.engine != "stored" and self.loading.on_cpu:
            compile_while_loading(lengths)
        self.failed += each_model(sources, self.voice, work)

    def score_model(self, source: str, name: str) -> None:
        """Load and score a model, and store each result; raises InterpError."""
        with self.voice.bars(name) as progress:
            progress("loading", 0, 1)
            model = self.loading.load(source, name)
            progress("loading", 1, 1)
            metrics = self.applying(model)
            prompts = self.prompts(model) if any(b.patterned() for b in metrics) else None
            metrics = with_their_segments(model, metrics, prompts, self.voice, alone=self.single)
            keys = {} if self.store is None else self._keys(model, metrics, prompts)
            found = self._already(keys)
            progress(name, len(found), len(metrics))
            try:
                missing = {label: key for label, key in keys.items() if label not in found}
                pieces = self._pieces(model, metrics, prompts, keys) if missing else None
                if pieces is not None:
                    self._announce(model, metrics, prompts)
                    assert isinstance(prompts, Prompts)
                    if not self._all_pieces(model, metrics, prompts, pieces, progress):
                        return  # the process that computes the last piece puts them together
                with self._alone(model, missing) as waited:
                    found |= self._already(missing) if waited else {}
                    todo = [b for b in metrics if b.label not in found]
                    if todo:
                        check_model(model).require()
                        self._announce(model, todo, prompts)
                    for label, table in self._scored(model, todo, prompts, progress, pieces):
                        found[label] = table
                        if self.store is not None:
                            self.store.write(keys[label], table)
                            self.kept += 1
                        self.computed += 1
                        progress(name, len(found), len(metrics))
                if pieces is not None:
                    pieces.remove()
            finally:  # also when interrupted: finished results are printed
                self.done += [found[b.label] for b in metrics if b.label in found]
                self.keys += [keys[b.label] for b in metrics if b.label in found and keys]

    def _alone(self, model: Model, keys: Mapping[str, Key]) -> AbstractContextManager[bool]:
        """Keep other processes from computing the same results; yield whether one just did."""
        if self.store is None or not keys:
            return nullcontext(False)

        def waiting() -> None:
            self.voice.note(f"another command scores {model.name}; waiting for its results")

        return locked(self.store.folder, [key.digest for key in keys.values()], waiting=waiting)

    def _scored(
        self,
        model: Model,
        metrics: list[BoundAnalysis],
        prompts: Any,
        progress: Callable,
        pieces: PromptPieces | None = None,
    ) -> Iterator[tuple[str, HeadTable]]:
        given = [b for b in metrics if b.analysis.kind != "experiment"]
        # with experiments, each with draws of its own, they are asked for again
        random = self._random(model, again=len(given) < len(metrics))
        for part in [given] * bool(given) + [[b] for b in metrics if b not in given]:
            try:
                yield from score_each(
                    model, part, prompts, null=self.null, seed=self.seed,
                    batch_size=self.batch_size, engine=self.engine, progress=progress,
                    null_draws=self.null_draws, parts=self.by_cluster, random=random,
                    pieces=pieces,
                )  # fmt: skip
            # An experiment may discover only while making its prompts that they do not fit the
            # model; if it is the only metric, this is an error like any other.
            except (OptionError, PromptError) as error:
                if part is given or self.single:
                    raise
                self.voice.note(f"{part[0].label} is omitted on {model.name}: {error}")

    def _random(self, model: Model, *, again: bool) -> RandomWeights:
        beside = None if self.store is None else self.store.folder
        kept = KeptNulls.of(self.null_cache, beside)
        return RandomWeights(model, self.seed, self.null_draws, kept, again=again)

    def _pieces(
        self, model: Model, metrics: Sequence[BoundAnalysis], prompts: Any, keys: Mapping[str, Key]
    ) -> PromptPieces | None:
        """Return the pieces of the prompts, if this is one part of them or pieces are there."""
        own = [keys[b.label].as_json() for b in metrics if b.patterned() and keys]
        if self.store is None or not own or not isinstance(prompts, Prompts):
            return None
        digest = hashlib.sha256("\n".join(sorted(own)).encode()).hexdigest()
        found = PromptPieces(self.store.folder, digest, model, prompts, self.batch_size)
        return found if self.part is not None or found.begun() else None

    def _all_pieces(
        self,
        model: Model,
        metrics: Sequence[BoundAnalysis],
        prompts: Prompts,
        pieces: PromptPieces,
        progress: Callable,
    ) -> bool:
        """Compute the own pieces of the prompts; return whether all are there."""
        check_model(model).require()
        patterned = [b for b in metrics if b.patterned()]
        own = pieces.own(self.part or Shard(1, 1))
        return score_pieces(
            model, patterned, prompts, pieces, own, null=self.null, seed=self.seed,
            batch_size=self.batch_size, engine=self.engine,
            random=self._random(model, again=False), progress=progress,
        )  # fmt: skip

    def applying(self, model: Model) -> list[BoundAnalysis]:
        """Return the metrics that apply to this model; the reason is reported for the others.

        Raises OptionError if the only metric names segments that the model cannot have.
        """
        reasons = {b.label: why_not(model, b) for b in self.metrics}
        reason = next(iter(reasons.values()), None)
        if self.single and self.metrics[0].analysis.reads_segments and reason is not None:
            raise OptionError(reason)
        lacking = {label: reason for label, reason in reasons.items() if reason is not None}
        alike: dict[str, list[str]] = {}
        for label, reason in lacking.items():
            alike.setdefault(reason.removeprefix(f"{label}: "), []).append(label)
        for reason, labels in alike.items():
            verb = "is" if len(labels) == 1 else "are"
            self.voice.note(f"{', '.join(labels)} {verb} omitted on {model.name}: {reason}")
        if maps := maps_of(model):
            self.voice.note(f"{model.name}: {', '.join(maps)} are not one softmax; their patterns "
                            "are absolute shares |M| / sum |M| of signed maps")  # fmt: skip
        return [b for b in self.metrics if reasons[b.label] is None]

    def prompts(self, model: Model) -> Any:
        """Return the prompts for attention metrics; raises PromptError."""
        if self.pictures is not None:
            return self.pictures.inputs(model)
        if self.prompt_file is not None:
            return from_file(self.prompt_file, model, context=self.context)
        given = default_prompts(model, self.seed)
        if self.context is None:
            return given
        if not isinstance(given, Prompts):
            raise PromptError(f"{model.name} does not read tokens, so --max-length does not apply")
        if model.limit is not None and self.context > model.limit:
            raise PromptError(
                f"{model.name} has positions for {model.limit} tokens, fewer than --max-length "
                f"{self.context}"
            )
        longest = (self.context - (bos_id(model) is not None)) // 2
        number = 16 if self.context <= LONG else 1
        return repeats(model, n=number, max_length=longest, seed=self.seed, beyond=True)

    def _announce(self, model: Model, todo: Sequence[BoundAnalysis], prompts: Any) -> None:
        """Announce a long run: its engine, its memory, and prompts beyond the trained context."""
        patterned = [b for b in todo if b.patterned()]
        if not patterned or not isinstance(prompts, Prompts):
            return
        require_memory(model, prompts, patterned, self.engine)
        if not self.slow and (why := why_slow(model, prompts)) is not None:
            self.slow = True
            self.voice.note(why)
        longest = max(map(len, prompts.ids))
        if model.context is not None and longest > model.context:
            self.voice.note(
                f"{model.name} was trained for {model.context} tokens; its scores on {longest:,} "
                f"tokens are outside that range"
            )
        if longest > LONG:
            self.voice.note(
                f"{model.name}: "
                f"{estimate_score(model, prompts, patterned, self.batch_size, self.engine)}"
            )

    def _keys(self, model: Model, metrics: Sequence[BoundAnalysis], prompts: Any) -> dict[str, Key]:
        """Return the cache keys of the scores, from the options before they are resolved."""
        options = {"null": self.null, "null_draws": self.null_draws, "seed": self.seed}
        return score_keys(model, metrics, prompts, options, self.engine, by_cluster=self.by_cluster)

    def _already(self, keys: Mapping[str, Key]) -> dict[str, HeadTable]:
        """Return the results of an earlier run, by metric."""
        if self.store is None:
            return {}
        asked = {label: self.store.find(key) for label, key in keys.items()}
        found = {label: table for label, table in asked.items() if table is not None}
        self.kept += len(found)
        if found:
            model = next(iter(keys.values())).model
            self.voice.note(
                f"{model}: {len(found)} of {len(keys)} metrics were already in {self.store.folder}"
            )
        return found

    def _safe(self) -> str:
        if self.store is None:
            return (
                "finished scores are printed above; with --out they would be stored, and the run "
                "could resume"
            )
        return f"{self.kept} results are stored in {self.store.folder}; {SAFE}"
