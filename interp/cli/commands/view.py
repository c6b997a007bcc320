"""Command `interp view`: attention patterns on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument
from interp.cli.value_types import PromptFile
from interp.cli.written import OutFile
from interp.core.errors import OptionError, PromptError
from interp.core.text_file import read_text

if TYPE_CHECKING:
    from interp.heads.patterns import View
    from interp.model.model import Model

LONG = 512  # number of tokens above which a prompt is shown in blocks by default
_MB = 1_000_000

GROUP = "Look"


@click.command(
    epilog="Example: interp view gpt2 --text 'The keys are on the table' --heads L5H1 -o view.html"
)
@model_argument
@click.option(
    "--text",
    "texts",
    multiple=True,
    metavar="TEXT",
    help="Text to show attention over. Given twice: two sentences, with the attention within and "
    "between them; for an encoder-decoder, its input and that of the decoder.",
)
@click.option(
    "--file",
    "prompt_file",
    type=PromptFile(),
    metavar="FILE",
    help="File whose text is used in place of --text.",
)
@click.option(
    "--image",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Image for a vision model, or before --text for a model that reads pictures inside "
    "text; needs pillow.",
)
@click.option(
    "--max-length",
    "context",
    type=click.IntRange(1),
    metavar="N",
    help="Use only the first N tokens; an error if there are fewer.",
)
@click.option(
    "--heads",
    metavar="L1H3,...",
    help="Heads to open first, and to keep in full detail if the page would be too large.",
)
@click.option("--stack", help="Show only this stack, such as encoder, decoder or cross.")
@click.option(
    "--show",
    type=click.Choice(["auto", "tokens", "blocks"]),
    default="auto",
    show_default=True,
    help=f"Weights between tokens, or exact masses of blocks; auto uses blocks above {LONG} "
    "tokens.",
)
@click.option(
    "--block",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens per block; by default chosen to give at most 256 blocks.",
)
@click.option(
    "--tile",
    "tiles",
    multiple=True,
    metavar="L1H3:Q-Q,K-K",
    help="Show a part of a block map token by token, such as L1H3:4000-4256,0-256 (ends not "
    "included). Repeatable.",
)
@click.option(
    "-o",
    "--out",
    type=OutFile("view.html"),
    default=Path("view.html"),
    show_default=True,
    metavar="FILE",
    help="File of the page (.html is added to a name without it), or a folder for view.html.",
)
@click.option(
    "--budget",
    default=1.5,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    metavar="MB",
    help="Maximum size of the page in MB; maps that do not fit are shown with less detail, which "
    "the page states.",
)
@click.option("--title", help="Title of the page.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def view(
    source: str,
    texts: tuple[str, ...],
    prompt_file: Path | None,
    image: Path | None,
    context: int | None,
    heads: str | None,
    stack: str | None,
    show: str,
    block: int | None,
    tiles: tuple[str, ...],
    out: Path,
    budget: float,
    title: str | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Show the attention of MODEL over a text: all heads, one head, one pair by dimension.

    A long text is shown as exact masses of blocks, with parts of it token by token.
    """
    from interp.core.declaration import split_names
    from interp.core.head import Head

    if len(texts) > 2:
        raise OptionError(f"give --text once, or twice for a pair; {len(texts)} given")
    text, text_b = (*texts, None, None)[:2]
    named = [Head.parse(name) for name in split_names(heads)] if heads else []
    in_blocks = {"--block": block is not None, "--tile": bool(tiles)}
    given = _text(text, prompt_file) if image is None else None
    if image is not None:
        _require_alone(text_b, prompt_file, context, any(in_blocks.values()))
    for option, is_given in in_blocks.items():
        if is_given and (show == "tokens" or text_b is not None):
            other = "a second --text" if text_b is not None else "--show tokens"
            raise OptionError(
                f"{option} applies to a block map; it cannot be combined with {other}"
            )
    if text_b is not None and (show == "blocks" or context is not None):
        other = "--show blocks" if show == "blocks" else "--max-length"
        raise OptionError(
            f"a second --text cannot be combined with {other}; give one long text, or a short pair"
        )
    voice = Voice.of_command(quiet=quiet)
    model = loaded(source, loading, imports)
    if given is None:
        from interp.heads.patterns import view as view_of
        from interp.heads.patterns.image_file import image_inputs

        if image is None:
            raise OptionError("nothing to show; give a text or --image FILE")
        if model.joint_sites:
            inputs = model.inputs(text=text or "", images=[image])
        elif text is not None:
            raise OptionError(
                f"--image cannot be combined with --text: {model.name} does not read pictures "
                "inside text"
            )
        else:
            inputs = image_inputs(model, source, image, revision=loading.revision)
        made = view_of(model, inputs, stack=stack, heads=named, title=title)
    elif text_b is None:
        made = _of_one(model, given, show, any(in_blocks.values()), voice, context=context,
                       block=block, stack=stack, heads=named, tiles=tiles, title=title)  # fmt: skip
    else:
        from interp.heads.patterns import view as view_of

        made = view_of(model, given, text_b=text_b, stack=stack, heads=named, title=title)
    made.save_html(out, budget=round(budget * _MB))
    voice.note(f"{out}: {out.stat().st_size / _MB:.2f} MB")
    click.echo(str(out))


def _require_alone(
    text_b: str | None,
    prompt_file: Path | None,
    context: int | None,
    in_blocks: bool,
) -> None:
    """Raise OptionError for options that apply to a text but not to an image."""
    given = {"a second --text": text_b, "--file": prompt_file, "--max-length": context}
    wrong = [name for name, value in given.items() if value is not None]
    if in_blocks:
        wrong.append("--block and --tile")
    if wrong:
        raise OptionError(f"--image cannot be combined with {', '.join(wrong)}")


def _text(text: str | None, prompt_file: Path | None) -> str:
    """Return the text to show.

    Raises:
        OptionError: neither a text nor a file is given, or both.
        PromptError: the text is empty, or the file cannot be read.
    """
    if (text is None) == (prompt_file is None):
        raise OptionError("give exactly one of --text, --file and --image")
    if prompt_file is not None:
        text = read_text(prompt_file)
    if not text or not text.strip():
        raise PromptError("the text is empty")
    return text


def _of_one(
    model: Model,
    text: str,
    show: str,
    needs_blocks: bool,
    voice: Voice,
    *,
    context: int | None,
    block: int | None,
    stack: str | None,
    heads: list[Any],
    tiles: tuple[str, ...],
    title: str | None,
) -> View:
    from interp.core.prompts import Prompts
    from interp.heads.patterns import long_view
    from interp.heads.patterns import view as view_of

    ids = Prompts.of(text, model).ids[0]
    if context is not None:
        if len(ids) < context:
            raise PromptError(f"the text has {len(ids)} tokens, fewer than --max-length {context}")
        ids = ids[:context]
    blocks = show == "blocks" or needs_blocks or (show == "auto" and len(ids) > LONG)
    if not blocks:
        return view_of(model, ids, stack=stack, heads=heads, title=title)
    if show == "auto" and not needs_blocks:
        voice.note(
            f"{len(ids):,} tokens are more than {LONG}: shown in blocks; use --show tokens "
            f"for single tokens"
        )
    with voice.bars(model.name) as progress:
        return long_view(
            model, ids, block=block, stack=stack, heads=heads, tiles=tiles, title=title,
            advance=lambda done, of: progress("layers", done, of),
        )  # fmt: skip
