"""Command `interp study vision`: heads of a vision transformer, on images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.vocabulary import Spelling
from interp.core.result_folder import folder_for
from interp.core.shell_line import shell_line

if TYPE_CHECKING:
    from interp.core.result import Result
    from interp.model.model import Model
    from interp.vision.own_images import Pictures

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
OF_IMAGES = ("image", "masks", "cues", "texts", "bank", "resize", "n", "seed")


def _pictures(run: Run) -> Pictures:
    from interp.vision.own_images import Pictures

    options = {name: run.values[name] for name in OF_IMAGES}
    return Pictures.of(run.model, options.pop("image"), number=options.pop("n"), **options)


def _check(run: Run) -> None:
    from interp.vision.measures import chosen_measures, require_maps

    chosen_measures(run.values["method"])
    require_maps(run.values["maps"])


@command(
    usual="bundled:shapes",
    inputs={"pictures": Input(_pictures, OF_IMAGES)},
    options={
        "image": Spelling(
            type=FOLDER,
            metavar="DIR",
            help="Folder of images, in subfolders named after their class if they have one; images "
            "drawn by the package by default, for the bundled models.",
        ),
        "masks": Spelling(
            type=FOLDER,
            metavar="DIR",
            help="Folder of masks of the object, with the names of the images.",
        ),
        "cues": Spelling(
            type=FILE,
            metavar="FILE",
            help="CSV of image and the class that a cue in it suggests (empty: no cue), for "
            "--method cue.",
        ),
        "texts": Spelling(
            help="Texts of the classes, one per line, for a model of two towers.", default=None
        ),
        "bank": Spelling(
            type=FILE,
            metavar="FILE",
            help="Texts that may describe a head, one per line, for a model of two towers.",
        ),
        "resize": Spelling(
            type=click.BOOL, help="Convert and resize images to what the model takes."
        ),
        "n": Spelling(type=click.IntRange(4), default=200, help="Maximum number of images."),
        "method": Spelling(metavar="NAME,..."),
        "maps": Spelling(type=click.STRING, metavar="NAME", multiple=True),
    },
    check=_check,
    text="interp.report.printed:nothing",
    example="interp study vision bundled:shapes-spurious --method cue",
)
def vision(
    run: Run,
    model: Model,
    pictures: Pictures,
    *,
    method: str | None = None,
    maps: Sequence[str] = (),
    top: int = 5,
    seed: int = 0,
) -> list[Result]:
    """Measure where the heads of a vision transformer look and what they write.

    Direct effects on the class (or on the similarity to texts), attention distance in patches,
    tokens of high norm, the class token with and without, readouts of heads against the encoder,
    agreement with masks, neurons that make tokens of high norm and an added token that takes them
    over, pruning of patches by the attention of the class token, and with cues the heads that
    decide by them, found on one half of the images and corrected on the other.

    Args:
        pictures: the images.
        method: measures: direct, distance, tokens, class_token, readouts, agreement, cue, texts; by
            default these, where there is what they need. Only when named: registers, pruning.
        maps: map to draw: class_attention, pooling (SigLIP), a head, or an attribution method; by
            default class_attention, and rollout of a vision transformer alone. Repeatable.
        top: number of rows to print per metric.
        seed: seed of images, splits and nulls.
    """
    from interp.report.printed.vision import vision_text
    from interp.report.vision_folder import write_head_table, write_maps
    from interp.vision.measures import chosen_measures, maps_to_draw, measures_of_images

    results = measures_of_images(model, pictures, chosen_measures(method), seed)
    run.say(f"{model.name}: {len(pictures.pixels)} images, {pictures.origin}\n")
    run.say(vision_text([*results.values()], top=top))
    if run.out is not None:
        about = {"hash": model.content_hash, "images": pictures.hash, "seed": seed}
        name = model.name.replace("bundled:", "")
        for stem, result in results.items():
            folder = folder_for(run.out, name, f"{stem}.html", about)
            for suffix in (".html", ".csv", ".json"):
                result.save(folder / f"{stem}{suffix}")
            run.voice.note(f"{folder}: {stem}.html (open it in a browser), {stem}.csv, {stem}.json")
        table = write_head_table(results, run.out, name)
        if table is not None:
            run.voice.note(f"{table}: all scores of heads ({shell_line('atlas', run.out)})")
        page = write_maps(model, pictures, maps_to_draw(model, maps), run.out, name, about)
        run.voice.note(f"{page}: maps over images")
    return [*results.values()]
