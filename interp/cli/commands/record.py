"""Command `interp record`: activations of a corpus on disk."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument
from interp.core.errors import OptionError

_MIB = 1 << 20

GROUP = "Results"


@click.command(
    epilog="Example: interp record gpt2 --file corpus.txt --activations z --layers 3-5 -o acts"
)
@model_argument
@click.option(
    "--file",
    "prompt_file",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Text file with one prompt per line; it may be larger than memory.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder for the shards and their index. The same command continues what is there.",
)
@click.option(
    "--activations",
    "names",
    default="z",
    show_default=True,
    metavar="NAME,...",
    help="Activations to record: q, k, v, z, result, resid_pre, resid_mid, resid_post, attn_out, "
    "mlp_out.",
)
@click.option("--layers", metavar="0,3-5", help="Layers to record; all by default.")
@click.option("--stack", help="Record only this stack, such as encoder, decoder or cross.")
@click.option("--heads", metavar="0,3-5", help="Query heads to record; all by default.")
@click.option(
    "--max-length",
    type=click.IntRange(1),
    metavar="N",
    help="Cut longer prompts to N tokens; by default they are refused.",
)
@click.option(
    "--store-dtype",
    type=click.Choice(["float32", "float16", "bfloat16"]),
    help="Data type on disk; the model's own by default.",
)
@click.option(
    "--batch-size",
    default=8,
    show_default=True,
    type=click.IntRange(1),
    help="Prompts that run together.",
)
@click.option(
    "--shard-mib",
    default=128,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Size of a shard in MiB; memory holds about three of them.",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def record(
    source: str,
    prompt_file: Path,
    out: Path,
    names: str,
    layers: str | None,
    stack: str | None,
    heads: str | None,
    max_length: int | None,
    store_dtype: str | None,
    batch_size: int,
    shard_mib: int,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Record activations of MODEL over the lines of a file, as sharded safetensors with an index.

    An interrupted command continues where it stopped; a damaged shard is computed again. Read the
    folder with `interp.model.RecordedActivations`: by prompt and position, memory-mapped.
    """
    from interp.core.declaration import split_names

    chosen_layers, chosen_heads = _numbers("--layers", layers), _numbers("--heads", heads)
    if not prompt_file.is_file():
        raise OptionError(f"--file {prompt_file}: there is no such file")
    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    from interp.model.recorded.recording import record_activations

    with voice.bars(model.name) as progress:
        recorded = record_activations(
            model,
            prompt_file,
            out,
            split_names(names),
            layers=chosen_layers,
            stack=stack,
            heads=chosen_heads,
            max_length=max_length,
            dtype=store_dtype,
            batch_size=batch_size,
            shard_bytes=shard_mib * _MIB,
            progress=progress,
        )
    size = sum(shard.n_bytes for shard in recorded.index.shards) / _MIB
    voice.note(
        f"{recorded.n_prompts:,} prompts, {recorded.n_tokens:,} tokens, "
        f"{len(recorded.index.shards)} shards, {size:,.1f} MiB"
    )
    click.echo(str(out))


def _numbers(option: str, text: str | None) -> list[int] | None:
    """Read numbers and ranges such as `0,3-5`; raises OptionError for anything else."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            numbers = range(int(first), int(last if dash else first) + 1)
        except ValueError as error:
            raise OptionError(
                f"{option} {text!r}: give numbers and ranges, such as 0,3-5"
            ) from error
        if not numbers:
            raise OptionError(f"{option} {text!r}: the range {part.strip()!r} is empty")
        found += numbers
    return list(dict.fromkeys(found))
