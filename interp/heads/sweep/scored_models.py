"""Scoring of many models one after another, storing finished results as it goes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from interp.core.declaration import split_names
from interp.core.errors import OptionError, PromptError
from interp.core.locks import locked
from interp.core.prompts import Prompts, bos_id, from_file, repeats
from interp.core.protocols import Reporter
from interp.core.registry import METRICS
from interp.core.shards import Shard
from interp.core.store import Key, Store
from interp.core.table import HeadTable
from interp.heads.declaration import BoundAnalysis
from interp.heads.estimate import estimate_score, require_memory
from interp.heads.score_keys import score_keys
from interp.heads.scoring import default_prompts, score_each, why_not
from interp.heads.scoring_in_pieces import PromptPieces, score_pieces
from interp.heads.sweep.compiling import compile_while_loading, guessed_lengths, why_slow
from interp.heads.sweep.each import each_model
from interp.heads.sweep.prompts import PicturePrompts, tell_own_prompts, with_their_segments
from interp.model.check import check_model
from interp.model.content import maps_of
from interp.model.loading import Loading
from interp.model.model import Model
from interp.model.random_weights import DRAWS, KeptNulls, RandomWeights

LONG = 2048  # number of tokens above which a run is announced


@dataclass
class ScoreSweep:
    """Scores of many models, computed and stored one after another, in processes or on a cluster.

    Args:
        metrics: the metrics.
        loading: how models are loaded.
        store: where results are stored.
        voice: reports notes, errors and progress.
        prompt_file: file of prompts.
        max_length: number of tokens: the first N of the file, or up to N per random prompt.
        null: null baseline: auto shuffles tokens for metrics that read them and uses random weights
            for the rest.
        seed: seed of prompts, shuffling and random weights.
        batch_size: prompts per forward pass; does not affect the numbers.
        engine: store attention patterns, or stream them in tiles. Fused streams in a single pass in
            place of the model's own kernel: fastest, but exact only up to float rounding. Auto
            stores small patterns, fuses on the CPU where the model allows it, and else decides by
            size.
        null_draws: number of draws of random weights: the null is their mean, and with three or
            more they give the p-value of each head.
        null_cache: keep the scores of random weights in interp/nulls of $XDG_CACHE_HOME (or of
            ~/.cache), and with --out also in DIR/nulls, and use those that are kept there. The
            weights themselves are not kept.
        by_cluster: also report the score on each cluster of dependent prompts (a common period,
            needle or order), as metrics such as 'induction [period 12]'.
        pictures: prompts of pictures or sound.
        texts: the metrics as they were written.
        asked: number of metrics of the whole command, in a worker.
        jobs: number of processes, which share models and metrics; fewer if memory is short. The
            values are those of one process with as many threads as each has.
        shard: do only the I-th of N parts, for job arrays; all jobs write to one --out.
        part: part of the prompts, in a worker.
        ray: score on a Ray cluster: host:port of its head node, 'auto' for the one on this machine,
            or 'local' to start one; --out must be a folder that all its machines see. Needs ray.
        shown: called with the scores of each model.
    """

    metrics: list[BoundAnalysis]
    loading: Loading
    store: Store | None
    voice: Reporter
    prompt_file: Path | None = None
    max_length: int | None = None
    null: Literal["auto", "shuffled-tokens", "random-init", "none"] = "auto"
    seed: int = 0
    batch_size: int = 16
    engine: Literal["auto", "stored", "streamed", "fused"] = "auto"
    null_draws: int = DRAWS
    null_cache: bool = True
    by_cluster: bool = False
    pictures: PicturePrompts | None = None
    texts: tuple[str, ...] = ()
    asked: int | None = None
    jobs: int = 1
    shard: Shard | None = None
    part: Shard | None = None
    ray: str | None = None
    shown: Callable[[HeadTable], None] | None = None
    done: list[HeadTable] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    kept: int = 0
    computed: int = 0
    keys: list[Key] = field(default_factory=list)
    slow: bool = False  # whether a note has said that long prompts are slow here

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
        voice: Reporter,
        prompt_file: Path | None = None,
        prompt_values: bool = True,
        **options: Any,
    ) -> ScoreSweep:
        """Check the whole command before hours of work.

        Raises:
            UnknownName, OptionError: a metric, option or prompt file does not exist.
            StoreError: the output folder cannot be written.
        """
        texts = [text for listed in metrics for text in split_names(listed)]
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
        if prompt_file is not None or options.get("max_length") is not None:
            tell_own_prompts(bounds, voice)
        if options.get("shard") is not None and store is None:
            raise OptionError("--shard needs --out, the folder that all jobs write to")
        if options.get("ray") is not None:
            from interp.heads.sweep.ray_cluster import require_cluster

            require_cluster(options["ray"], store is not None)
        options["texts"] = tuple(texts)
        return cls(bounds, store=store, voice=voice, prompt_file=prompt_file, **options)

    def run(self, sources: Mapping[str, str]) -> None:
        """Score all models, into `done`; `failed` names those that could not be scored.

        Args:
            sources: name of each source.

        Raises:
            StoreError: results cannot be stored.
        """
        if self.jobs > 1 or self.shard is not None or self.ray is not None:
            from interp.heads.sweep.grid import run_grid

            return run_grid(self, sources)

        def work(source: str, name: str) -> None:
            before = len(self.done)
            try:
                self.score_model(source, name)
            finally:
                if self.shown is not None and len(self.done) > before:
                    self.shown(HeadTable.concat(self.done[before:]))

        lengths = guessed_lengths(self.prompt_file, self.max_length)
        patterned = any(b.patterned() for b in self.metrics)
        if patterned and self.engine != "stored" and self.loading.on_cpu:
            compile_while_loading(lengths)
        self.reasons = each_model(sources, self.voice, work)
        self.failed += self.reasons

    def score_model(self, source: str, name: str) -> None:
        """Load and score a model, and store each result; raises InterpError."""
        with self.voice.bars(name) as progress:
            model = self.loading.load(source, name, progress)
            metrics = self.applying(model)
            prompts = self.prompts(model) if any(b.patterned() for b in metrics) else None
            metrics = with_their_segments(model, metrics, prompts, self.voice, alone=self.single)
            keys = {} if self.store is None else self._keys(model, metrics, prompts)
            tables = self._already(keys)
            progress(name, len(tables), len(metrics))
            try:
                missing = {label: key for label, key in keys.items() if label not in tables}
                pieces = self._pieces(model, metrics, prompts, keys) if missing else None
                if pieces is not None:
                    self._announce(model, metrics, prompts)
                    assert isinstance(prompts, Prompts)
                    if not self._all_pieces(model, metrics, prompts, pieces, progress):
                        return  # the process that computes the last piece puts them together
                with self._alone(model, missing) as waited:
                    tables |= self._already(missing) if waited else {}
                    todo = [b for b in metrics if b.label not in tables]
                    if todo:
                        check_model(model).require()
                        self._announce(model, todo, prompts)
                    for label, table in self._scored(model, todo, prompts, progress, pieces):
                        tables[label] = table
                        if self.store is not None:
                            self.store.write(keys[label], table)
                            self.kept += 1
                        self.computed += 1
                        progress(name, len(tables), len(metrics))
                if pieces is not None:
                    pieces.remove()
            finally:  # also when interrupted: finished results are printed
                self.done += [tables[b.label] for b in metrics if b.label in tables]
                self.keys += [keys[b.label] for b in metrics if b.label in tables and keys]

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
        together = [b for b in metrics if b.analysis.kind != "experiment"]
        # experiments come after these metrics and draw random weights again
        random = self._random(model, again=len(together) < len(metrics))
        for part in [together] * bool(together) + [[b] for b in metrics if b not in together]:
            try:
                yield from score_each(
                    model,
                    part,
                    prompts,
                    null=self.null,
                    seed=self.seed,
                    batch_size=self.batch_size,
                    engine=self.engine,
                    progress=progress,
                    null_draws=self.null_draws,
                    parts=self.by_cluster,
                    random=random,
                    pieces=pieces,
                )
            # An experiment may discover only while making its prompts that they do not fit the
            # model; if it is the only metric, this is an error like any other.
            except (OptionError, PromptError) as error:
                if part is together or self.single:
                    raise
                self.voice.note(f"{part[0].label} is omitted on {model.name}: {error}")

    def _random(self, model: Model, *, again: bool) -> RandomWeights:
        beside = None if self.store is None else self.store.folder
        nulls = KeptNulls.of(self.null_cache, beside)
        return RandomWeights(model, self.seed, self.null_draws, nulls, again=again)

    def _pieces(
        self, model: Model, metrics: Sequence[BoundAnalysis], prompts: Any, keys: Mapping[str, Key]
    ) -> PromptPieces | None:
        """Return the pieces of the prompts; None for a run of all of them without stored pieces."""
        identities = [keys[b.label].as_json() for b in metrics if b.patterned() and keys]
        if self.store is None or not identities or not isinstance(prompts, Prompts):
            return None
        digest = hashlib.sha256("\n".join(sorted(identities)).encode()).hexdigest()
        pieces = PromptPieces(self.store.folder, digest, model, prompts, self.batch_size)
        return pieces if self.part is not None or pieces.begun() else None

    def _all_pieces(
        self,
        model: Model,
        metrics: Sequence[BoundAnalysis],
        prompts: Prompts,
        pieces: PromptPieces,
        progress: Callable,
    ) -> bool:
        """Compute the pieces of this process; return whether those of all processes are there."""
        check_model(model).require()
        patterned = [b for b in metrics if b.patterned()]
        own_pieces = pieces.own(self.part or Shard(1, 1))
        return score_pieces(
            model,
            patterned,
            prompts,
            pieces,
            own_pieces,
            null=self.null,
            seed=self.seed,
            batch_size=self.batch_size,
            engine=self.engine,
            random=self._random(model, again=False),
            progress=progress,
        )

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
            self.voice.note(
                f"{model.name}: {', '.join(maps)} are not one softmax; their patterns "
                "are absolute shares |M| / sum |M| of signed maps"
            )
        return [b for b in self.metrics if reasons[b.label] is None]

    def prompts(self, model: Model) -> Any:
        """Return the prompts for attention metrics; raises PromptError."""
        if self.pictures is not None:
            return self.pictures.inputs(model)
        if self.prompt_file is not None:
            return from_file(self.prompt_file, model, context=self.max_length)
        default = default_prompts(model, self.seed)
        if self.max_length is None:
            return default
        if not isinstance(default, Prompts):
            raise PromptError(f"{model.name} does not read tokens, so --max-length does not apply")
        if model.limit is not None and self.max_length > model.limit:
            raise PromptError(
                f"{model.name} has positions for {model.limit} tokens, fewer than --max-length "
                f"{self.max_length}"
            )
        longest = (self.max_length - (bos_id(model) is not None)) // 2
        number = 16 if self.max_length <= LONG else 1
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
        tables = {label: table for label, table in asked.items() if table is not None}
        self.kept += len(tables)
        if tables:
            model = next(iter(keys.values())).model
            self.voice.note(
                f"{model}: {len(tables)} of {len(keys)} metrics were already in {self.store.folder}"
            )
        return tables
