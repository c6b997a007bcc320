"""Command `interp study pictures`: heads and tokens of a model that reads pictures in text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.picture_prompts import PicturePrompts, picture_options
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument
from interp.cli.value_types import OUT_FOLDER
from interp.cli.written import model_folder
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.model import Model

ANALYSES = ("sinks", "grounding", "dropping", "contrast")


@click.command(
    epilog="Example: interp study pictures models/llava -m grounding --image a.png --image b.png"
    "--image c.png --image d.png --text 'The animal is a' --answer cat --answer dog ..."
)
@model_argument
@click.option(
    "-m", "--method", required=True, type=click.Choice(ANALYSES),
    help="sinks: tokens of the picture that are attention sinks, and the heads on them. grounding: "
    "heads that attend to the picture, ablated. dropping: loss without the least attended tokens "
    "(FastV). contrast: answers against a run on less of the picture (no image, AvisC).",
)  # fmt: skip
@picture_options
@click.option("--answer", "answers", multiple=True, metavar="TEXT|ID",
              help="The answer to each prompt: its first token, or a token id. Not for sinks. "
              "Repeatable.")  # fmt: skip
@click.option("--layer", type=click.IntRange(1), default=2, show_default=True,
              help="With -m dropping: first layer without the dropped tokens.")  # fmt: skip
@click.option("--drop", multiple=True, type=float, default=(0.5,), show_default=True,
              help="With -m dropping: share of the picture's tokens that is dropped. "
                   "Repeatable.")  # fmt: skip
@click.option("--tau", type=float, default=20.0, show_default=True,
              help="With -m sinks: smallest ratio of a value to the root mean square.")  # fmt: skip
@click.option("-k", "k", type=click.IntRange(1), default=4, show_default=True,
              help="With -m grounding: number of heads.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of halves and random tokens.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for METHOD.json, METHOD.csv and METHOD.html.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def pictures(
    source: str, method: str, images: tuple[Path, ...], audio: tuple[Path, ...],
    text: tuple[str, ...], answers: tuple[str, ...], layer: int, drop: tuple[float, ...],
    tau: float, k: int, seed: int, out: Path | None, quiet: bool, loading: Loading,
    imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Analyse how MODEL reads pictures inside text.

    Each --image is a prompt, with one --text each or one for all; the answer follows the last
    token. Sinks and grounding heads are found on half of the prompts and judged on the other half.
    """
    asked = PicturePrompts.asked(images, audio, text)
    if asked is None or not asked.images:
        raise OptionError("give the pictures by --image, and the text beside them by --text")
    if method != "sinks" and len(answers) != len(images):
        raise OptionError(f"{len(answers)} --answer for {len(images)} pictures; give one for each")
    import_first(imports)
    voice = Voice.of_command(quiet=quiet)
    from interp.heads import vision_language as found_in

    with voice.bars(source) as tell:
        model = loading.checked(source, source, tell)
        inputs = asked.inputs(model)
        wanted = [_token(model, answer) for answer in answers]
        found: Any
        if method == "sinks":
            found = found_in.visual_sinks(model, inputs, tau=tau, seed=seed)
        elif method == "grounding":
            found = found_in.grounding_heads(model, inputs, wanted, k=k, seed=seed)
        elif method == "dropping":
            found = found_in.drop_tokens(model, inputs, wanted, layer=layer, drop=drop, seed=seed)
        else:
            found = found_in.contrast_pictures(model, inputs, wanted, seed=seed)
    click.echo(repr(found))
    if out is not None:
        folder = model_folder(out, model.name)
        for end in ("json", "csv", "html"):
            found.save(folder / f"{method}.{end}")
        voice.note(f"{folder}: {method}.json, {method}.csv, {method}.html")


def _token(model: Model, answer: str) -> int:
    """Return the first token of an answer, or the id that it is."""
    if answer.isdecimal():
        return int(answer)
    if model.tokenizer is None:
        raise OptionError(f"--answer {answer}: {model.name} has no tokenizer; give a token id")
    ids = model.tokenizer(answer, add_special_tokens=False)["input_ids"]
    if not ids:
        raise OptionError(f"--answer {answer!r} has no tokens; give a word or a token id")
    return int(ids[0])
