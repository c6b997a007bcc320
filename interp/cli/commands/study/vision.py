"""Command `interp study vision`: heads of a vision transformer, on images."""

from __future__ import annotations

from pathlib import Path

import click

from interp.cli.between import printed_rows, voice_of
from interp.cli.loading import Loading, import_first, loading_options
from interp.cli.shared_options import model_argument
from interp.cli.written import folder_for


@click.command(epilog="Example: interp study vision bundled:shapes-spurious --method cue")
@model_argument
@click.option(
    "--images", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
    help="Folder of images, in subfolders named after their class if they have one; images drawn "
    "by the package by default, for the bundled models.",
)  # fmt: skip
@click.option(
    "--masks", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
    help="Folder of masks of the object, with the names of the images.",
)  # fmt: skip
@click.option(
    "--cues", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="CSV of image and the class that a cue in it suggests (empty: no cue), for --method cue.",
)  # fmt: skip
@click.option(
    "--texts", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Texts of the classes, one per line, for a model of two towers.",
)  # fmt: skip
@click.option(
    "--bank", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Texts that may describe a head, one per line, for a model of two towers.",
)  # fmt: skip
@click.option("--resize", is_flag=True, help="Convert and resize images to what the model takes.")
@click.option(
    "--method", "only", metavar="NAME,...",
    help="Measures: direct, distance, tokens, class_token, readouts, agreement, cue, texts; by "
    "default these, where there is what they need. Only when named: registers, pruning.",
)  # fmt: skip
@click.option(
    "--draw", "maps", multiple=True, metavar="NAME",
    help="Map to draw: class_attention, pooling (SigLIP), a head, or an attribution method; by "
    "default class_attention, and rollout of a vision transformer alone. Repeatable.",
)  # fmt: skip
@click.option(
    "-n", "number", default=200, show_default=True, type=click.IntRange(4),
    help="Maximum number of images.",
)  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder for tables, a page per measure and maps.html.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of images, splits and nulls.")
@click.option("--top", default=5, show_default=True, type=click.IntRange(0), metavar="K",
              help="Number of rows to print per metric.")  # fmt: skip
@click.option("--json", "form", flag_value="json", help="Print only the rows, as JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print only the rows, as CSV.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def vision(
    source: str,
    images: Path | None,
    masks: Path | None,
    cues: Path | None,
    texts: Path | None,
    bank: Path | None,
    resize: bool,
    only: str | None,
    maps: tuple[str, ...],
    number: int,
    out: Path | None,
    seed: int,
    top: int,
    form: str | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Measure where the heads of a vision transformer look and what they write.

    Direct effects on the class (or on the similarity to texts), attention distance in patches,
    tokens of high norm, the class token with and without, readouts of heads against the encoder,
    agreement with masks, neurons that make tokens of high norm and an added token that takes them
    over, pruning of patches by the attention of the class token, and with cues the heads that
    decide by them, found on one half of the images and corrected on the other.
    """
    from interp.cli.vision_images import Pictures
    from interp.cli.vision_measures import (
        chosen_measures,
        maps_to_draw,
        measures_of_images,
        require_maps,
        text_of_vision,
        write_head_table,
        write_maps,
    )

    asked = chosen_measures(only)
    require_maps(maps)
    loading.require_device()
    import_first(imports)
    voice = voice_of(quiet)
    with voice.bars(source) as tell:
        model = loading.checked(source, source, tell)
    pictures = Pictures.of(
        model, images, masks=masks, cues=cues, texts=texts, bank=bank, resize=resize,
        number=number, seed=seed,
    )  # fmt: skip
    found = measures_of_images(model, pictures, asked, seed)
    if form is not None:
        for result in found.values():
            printed_rows(result, form)
    else:
        click.echo(text_of_vision(model.name, pictures, found, top))
    if out is not None:
        about = {"hash": model.content_hash, "images": pictures.hash, "seed": seed}
        name = model.name.replace("bundled:", "")
        for stem, result in found.items():
            folder = folder_for(out, name, f"{stem}.html", about)
            for suffix in (".html", ".csv", ".json"):
                result.save(folder / f"{stem}{suffix}")
            voice.note(f"{folder}: {stem}.html (open it in a browser), {stem}.csv, {stem}.json")
        table = write_head_table(found, out, name)
        if table is not None:
            voice.note(f"{table}: all scores of heads (interp atlas {out})")
        page = write_maps(model, pictures, maps_to_draw(model, maps), out, name, about)
        voice.note(f"{page}: maps over images")
