"""Command `interp profile`: what every head does on a corpus, judged on unseen documents."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import Spelling
from interp.core.declaration import split_names
from interp.core.errors import OptionError
from interp.core.shards import Shard
from interp.model.loading import source_labels

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.profiles.result import Profile

GROUP = "Measure"


def _check(run: Run) -> None:
    shard, jobs = run.values["shard"], run.values["jobs"]
    if shard is not None and run.out is None:
        raise OptionError("--shard needs --out: the finished steps of all shards go there")
    if shard is not None and jobs > 1:
        raise OptionError("--shard and --jobs: a shard is one process; give one of them")
    if run.values["ray"] is not None:
        if shard is not None:
            raise OptionError("--shard and --ray: a cluster does all shards; give one of them")
        from interp.heads.sweep.ray_cluster import require_cluster

        require_cluster(run.values["ray"], run.out is not None)


@command(
    loading=("chat",),
    also={
        "interp.profiles.run:profile": (
            "field",
            "rules",
            "heads",
            "n_documents",
            "n_queries",
            "max_length",
            "seed",
            "shard",
        )
    },
    options={
        "rules": Spelling(
            type=click.STRING,
            metavar="NAME",
            help="A rule or detector to try, several separated by commas, or a .py file that "
            "declares a detector. Repeatable; by default all rules of the package.",
            multiple=True,
            read=lambda names: [name for text in names for name in split_names(text)] or None,
        ),
        "field": Spelling(metavar="NAME"),
        "max_length": Spelling(default=256),
        "shard": Spelling(type=click.STRING, read=lambda text: text and Shard.parse(text)),
    },
    files=("profile.json", "profile.parquet", "profile.html"),
    check=_check,
    example="interp profile bundled:stories --corpus stories.jsonl -o results",
)
def profile(
    run: Run,
    model: Model,
    corpus: Any = None,
    *,
    jobs: int = 1,
    ray: str | None = None,
    resume: Path | None = None,
    effects: bool = True,
    progress: Any = None,
    **options: Any,
) -> Profile | None:
    """Describe what every head of MODEL does on a corpus, judged on unseen documents.

    Each head gets a sentence (a short list of where its attention goes, with shares that can be
    counted), the share of its pattern that this explains on documents that did not choose it,
    examples, and whether the head matters on this text. Without --corpus the texts that come with
    MODEL are read, else the bundled texts if they suit it, else at most 64 that it writes; real
    texts are always better.

    Args:
        corpus: files or folders of text, JSON lines, Parquet or Arrow.
        jobs: number of processes, each with a copy of the model.
        ray: work on a Ray cluster: host:port of its head node, 'auto' for the one on this machine,
            or 'local' to start one; --out must be a folder that all its machines see. Needs ray.
        resume: see `interp.profile`.
        effects: measure also whether heads matter and what they write, and tell their behaviours
            and dimensions, which takes most of the time.
    """
    from interp import profile
    from interp.profiles.steps import ShardsMissing

    options |= {"effects": effects, "behaviours": effects}
    if jobs == 1 and ray is None:
        try:
            return profile(model, corpus, resume=resume, progress=progress, **options)
        except ShardsMissing as error:
            run.voice.note(f"shard {options['shard']}: {error}")
            run.failed += 1
            return None
    from interp.profiles.jobs import profile_in_jobs

    with tempfile.TemporaryDirectory() as empty:
        [(source, name)] = source_labels(run.sources).items()
        there, arguments = resume or Path(empty), {"corpus": corpus, **options}
        if not profile_in_jobs(run.loading, source, name, jobs, there, arguments, ray):
            run.voice.note("a process died; what it did not finish is computed here")
        return profile(model, corpus, resume=there, progress=progress, **options)
