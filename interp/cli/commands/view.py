"""Command `interp view`: attention patterns on one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.vocabulary import ABOVE_0, FROM_1, Spelling
from interp.cli.written import OutFile
from interp.core.declaration import split_names
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.prompt_file import read_text
from interp.core.result_files import FIGURES

if TYPE_CHECKING:
    from interp.model.model import Model

LONG = 512  # number of tokens above which a prompt is shown in blocks by default
SHORT_MB, LONG_MB = 1.5, 4.0  # of a page by default
_MB = 1_000_000
GROUP = "Look"


def _check(run: Run) -> None:
    """Refuse options that exclude others."""
    values = run.values
    if (form := run.out.suffix.lower()[1:]) in ("pdf", "png"):
        from interp.report.paper import converter

        converter(form)  # before a model is loaded
    show, pair = values["show"], len(values["text"]) == 2
    if len(values["text"]) > 2:
        raise OptionError(f"give --text once, or twice for a pair; {len(values['text'])} given")
    if values["image"] is not None:
        alone = {
            "a second --text": pair,
            "--file": values["prompt_file"],
            "--max-length": values["max_length"],
            "--set tiles": values["tiles"],
        }
        if wrong := [name for name, value in alone.items() if value]:
            raise OptionError(f"--image cannot be combined with {', '.join(wrong)}")
    elif bool(values["text"]) == (values["prompt_file"] is not None):
        raise OptionError("give exactly one of --text, --file and --image")
    elif values["text"] and not values["text"][0].strip():
        raise PromptError("the text is empty")
    if values["tiles"] and (show == "tokens" or pair):
        other = "a second --text" if pair else "--set show=tokens"
        raise OptionError(f"--set tiles applies to a block map; it cannot be combined with {other}")
    if pair and (show == "blocks" or values["max_length"] is not None):
        other = "--set show=blocks" if show == "blocks" else "--max-length"
        raise OptionError(
            f"a second --text cannot be combined with {other}; give one long text, or a short pair"
        )


@command(
    loading=("chat",),
    options={
        "text": Spelling(
            multiple=True,
            help="Text to show attention over. Given twice: two sentences, with the attention "
            "within and between them; for an encoder-decoder, its input and that of the decoder.",
        ),
        "prompt_file": Spelling(help="File whose text is used in place of --text."),
        "image": Spelling(
            type=click.Path(path_type=Path),
            help="Image for a vision model, or before --text for a model that reads pictures "
            "inside text; needs pillow.",
        ),
        "max_length": Spelling(
            type=FROM_1, help="Use only the first N tokens; an error if there are fewer."
        ),
        "heads": Spelling(
            type=click.STRING,
            metavar="L1H3,...",
            default="",
            read=lambda text: [Head.parse(name) for name in split_names(text)],
            help="Heads to open first, and to keep in full detail if the page would be too large.",
        ),
        "stack": Spelling(help="Show only this stack, such as encoder, decoder or cross."),
        "tiles": Spelling(type=click.STRING, metavar="L1H3:Q-Q,K-K", multiple=True),
        "max_mb": Spelling(type=ABOVE_0, metavar="MB"),
    },
    out=OutFile("view.html", figures=FIGURES),
    check=_check,
    text="interp.report.printed:nothing",
    example="interp view gpt2 --text 'The keys are on the table' --heads L5H1 -o view.html",
)
def view(
    run: Run,
    model: Model,
    text: Sequence[str] = (),
    *,
    prompt_file: Path | None = None,
    image: Path | None = None,
    max_length: int | None = None,
    heads: Any = (),
    stack: str | None = None,
    show: Literal["auto", "tokens", "blocks"] = "auto",
    tiles: Sequence[str] = (),
    max_mb: float | None = None,
    progress: Any = None,
) -> None:
    """Show the attention of MODEL over a text: all heads, one head, one pair by dimension.

    A long text is shown as exact masses of blocks, with parts of it token by token. A figure is the
    map of one head: the first of --heads, or the one with which the page opens.

    Args:
        prompt_file: file of the text.
        max_length: number of tokens.
        heads: heads to open first.
        show: weights between tokens, or exact masses of blocks; auto uses blocks above 512 tokens.
        tiles: show a part of a block map token by token, such as L1H3:4000-4256,0-256 (ends not
            included). Repeatable.
        max_mb: maximum size of the page in MB; maps that do not fit are shown with less detail,
            which the page states. By default 1.5, and 4 for a text in blocks, whose page zooms
            into the named heads, or into the one with the strongest link, down to single tokens.
    """
    from interp.heads import patterns

    shared: Any = {"stack": stack, "heads": heads}
    if image is not None:
        shown: Any = patterns.view(model, _image_inputs(run, model, image, text), **shared)
    elif len(text) == 2:
        shown = patterns.view(model, text[0], text_b=text[1], **shared)
    else:
        ids = _ids(model, read_text(prompt_file) if prompt_file else text[0], max_length)
        asked = show == "blocks" or bool(tiles)
        if not asked and show == "auto" and len(ids) > LONG:
            asked = True
            run.voice.note(
                f"{len(ids):,} tokens are more than {LONG}: shown in blocks; use --set show=tokens "
                f"for single tokens"
            )
        if asked:
            shown = patterns.long_view(
                model,
                ids,
                tiles=tiles,
                **shared,
                advance=lambda done, of: progress("layers", done, of),
            )
        else:
            shown = patterns.view(model, ids, **shared)
    long = any(one.block > 1 for one in shown.stacks)
    size = max_mb or (LONG_MB if long else SHORT_MB)
    if run.out.suffix.lower() in (".html", ".htm"):
        shown.save_html(run.out, budget=round(size * _MB))
    elif max_mb is not None:
        raise OptionError("--set max_mb limits a page; a figure has one size, so leave it out")
    else:
        shown.save(run.out)
    run.voice.note(f"{run.out}: {run.out.stat().st_size / _MB:.2f} MB")
    run.say(str(run.out))


def _ids(model: Model, text: str, max_length: int | None) -> tuple[int, ...]:
    """Return the tokens of a text, or the first of them; raises PromptError."""
    from interp.core.prompts import Prompts

    if not text.strip():
        raise PromptError("the text is empty")
    ids = Prompts.of(text, model).ids[0]
    if max_length is not None and len(ids) < max_length:
        raise PromptError(f"the text has {len(ids)} tokens, fewer than --max-length {max_length}")
    return ids[:max_length]


def _image_inputs(run: Run, model: Model, image: Path, text: Sequence[str]) -> Any:
    """Return the inputs of an image, with the text beside it where the model reads both."""
    from interp.heads.patterns.capturing import image_inputs

    if model.joint_sites:
        return model.inputs(text="".join(text), images=[image])
    if text:
        raise OptionError(
            f"--image cannot be combined with --text: {model.name} does not read pictures "
            "inside text"
        )
    return image_inputs(model, run.sources[0], image, revision=run.loading.revision)
