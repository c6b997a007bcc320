"""Command `interp record`: activations of a corpus on disk."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.declaration import split_names
from interp.core.errors import OptionError

GROUP = "Results"
_MIB = 1 << 20


class NumberRanges(click.ParamType):
    """Numbers and ranges such as `0,3-5`."""

    name = "text"

    def convert(self, value: object, param: click.Parameter | None, ctx: object) -> object:
        """Read the numbers; raises OptionError for anything else."""
        if not isinstance(value, str):
            return value
        option = param.opts[-1] if param is not None else "numbers"
        chosen: list[int] = []
        for part in value.split(","):
            first, dash, last = part.strip().partition("-")
            try:
                numbers = range(int(first), int(last if dash else first) + 1)
            except ValueError as error:
                raise OptionError(
                    f"{option} {value!r}: give numbers and ranges, such as 0,3-5"
                ) from error
            if not numbers:
                raise OptionError(f"{option} {value!r}: the range {part.strip()!r} is empty")
            chosen += numbers
        return list(dict.fromkeys(chosen))


NUMBERS = NumberRanges()


def _check(run: Run) -> None:
    file = run.values["corpus"]
    if not file.is_file():
        raise OptionError(f"--file {file}: there is no such file")


def _said(run: Run) -> None:
    [(_, [recorded])] = run.results
    size = sum(shard.n_bytes for shard in recorded.index.shards) / _MIB
    run.voice.note(
        f"{recorded.n_prompts:,} prompts, {recorded.n_tokens:,} tokens, "
        f"{len(recorded.index.shards)} shards, {size:,.1f} MiB"
    )
    run.say(str(run.values["folder"]))


record = command(
    "interp.model.recorded.recording:record_activations",
    omit=("dtype", "heads", "resume", "shard_bytes"),
    options={
        "corpus": Spelling(
            ("--file",),
            click.Path(path_type=Path),
            "FILE",
            "Text file with one prompt per line; it may be larger than memory.",
            multiple=False,
            read=Path,
        ),
        "folder": Spelling(
            ("-o", "--out"),
            click.Path(path_type=Path),
            "DIR",
            "Folder for the shards and their index. The same command continues what is there.",
        ),
        "names": Spelling(
            ("--site",),
            click.STRING,
            "NAME,...",
            "Activations to record: q, k, v, z, result, resid_pre, resid_mid, resid_post, "
            "attn_out, mlp_out.",
            default="z",
            read=split_names,
        ),
        "layers": Spelling(type=NUMBERS, metavar="0,3-5", help="Layers to record; all by default."),
        "stack": Spelling(help="Record only this stack, such as encoder, decoder or cross."),
        "max_length": Spelling(
            type=FROM_1, help="Cut longer prompts to N tokens; by default they are refused."
        ),
    },
    out=None,
    check=_check,
    after=_said,
    text="interp.report.printed:nothing",
    help="An interrupted command continues where it stopped; a damaged shard is computed again. "
    "Read the folder with `interp.model.RecordedActivations`, by prompt and position.",
    example="interp record gpt2 --file corpus.txt --site z --layer 3-5 -o acts",
)
