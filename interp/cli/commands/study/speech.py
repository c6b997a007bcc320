"""Command `interp study speech`: times of spoken words from cross attention, with their error."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.lens_table import decoder_lens_text
from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.progress import Voice
from interp.cli.shared_options import model_argument
from interp.cli.traced_prompts import aligned_table, saved_in
from interp.cli.value_types import OUT_FOLDER, ItemFile
from interp.core.errors import OptionError
from interp.core.head import Head

if TYPE_CHECKING:
    from interp.heads.alignment import TimeAlignments, Utterance, WordTimes
    from interp.model.model import Model

SOUND = click.Path(exists=True, dir_okay=False, path_type=Path)


def _recordings(path: str) -> list[Utterance]:
    from interp.heads.alignment.recordings import read_recordings

    return read_recordings(path)


@click.command(
    epilog="Example: interp study speech openai/whisper-tiny --audio a.wav --text 'the cat'"
)
@model_argument
@click.option("--file", "listed", type=ItemFile(_recordings), metavar="FILE",
    help="File of recordings and their texts (.jsonl).")  # fmt: skip
@click.option("--audio", multiple=True, type=SOUND,
              metavar="FILE", help="Recording: a .wav file (16 bits, one channel). "
                                   "Repeatable.")  # fmt: skip
@click.option("--text", multiple=True, metavar="TEXT",
              help="Words that are spoken in a recording; one --text per --audio.")  # fmt: skip
@click.option("-m", "--method", "measure", default="times", show_default=True,
              type=click.Choice(["times", "decoder-lens"]),
              help="times: when each word is spoken, and the error against gold times. "
                   "decoder-lens: loss of the text when the decoder reads an earlier encoder "
                   "layer.")  # fmt: skip
@click.option("--heads", metavar="L3H1,L4H2", callback=lambda _, __, x: x and x.split(","),
              help="Cross-attention heads to read together. By default those chosen on recordings "
                   "with gold times, else those that the model declares.")  # fmt: skip
@click.option("--rows", default="emits", show_default=True, type=click.Choice(["emits", "fed"]),
              help="Decoder row that stands for a token: the row that predicts it, or the row that "
                   "reads it.")  # fmt: skip
@click.option("--language", metavar="CODE",
              help="Language of the text, such as en, for a multilingual Whisper.")  # fmt: skip
@click.option("--choose", default=3, show_default=True, type=click.IntRange(1), metavar="K",
              help="Number of heads to choose by gold times.")  # fmt: skip
@click.option("--select", default=0.5, show_default=True,
              type=click.FloatRange(0, 1, min_open=True, max_open=True),
              help="Share of the recordings that choose heads; the others judge.")  # fmt: skip
@click.option("--width", type=click.IntRange(1), metavar="W",
              help="Width of the median filter in encoder positions, an odd number; by default "
                   "that of the model's config.")  # fmt: skip
@click.option("--random", "null_draws", default=199, show_default=True,
              type=click.IntRange(1), metavar="N",
              help="Number of random orders of the token rows, the null of the error.")  # fmt: skip
@click.option("--top", default=12, show_default=True, type=click.IntRange(1), metavar="K",
              help="Number of heads and of words to print.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of split and null.")
@click.option("-o", "--out", type=OUT_FOLDER, metavar="DIR",
              help="Folder for word_times and time_alignment (or decoder_lens) as .json, .csv and "
                   ".html; `interp atlas` reads it.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def speech(
    source: str, listed: list[Utterance] | None, audio: tuple[Path, ...], text: tuple[str, ...],
    measure: str, heads: list[str] | None, rows: Any, language: str | None, choose: int,
    select: float, width: int | None, null_draws: int, top: int, seed: int, out: Path | None,
    quiet: bool, loading: Loading, imports: tuple[str, ...],
) -> None:  # fmt: skip
    """Find when words are spoken, by the cross attention of a speech MODEL such as Whisper.

    Each line of the file is an object such as {"audio": "a.wav", "text": "the cat", "words":
    [["the", 0.12], ["cat", 0.34]]}; words give the start in seconds and may be left out. With gold
    times of four or more recordings every head is scored, and heads are chosen on some recordings
    and judged on the others.
    """
    recordings = _asked(listed, audio, text)
    for head in heads or ():
        Head.parse(head)
    loading.require_device()
    import_first(imports)
    voice = Voice.of_command(quiet=quiet)
    [(path, name)] = source_labels((source,)).items()
    with voice.bars(name) as tell:
        model = loading.checked(path, name, tell)
    if measure == "decoder-lens":
        from interp.heads.alignment.heard import heard_recordings, spoken_targets
        from interp.lens import decoder_lens

        batch, labels = spoken_targets(
            model, heard_recordings(model, recordings, language=language)
        )
        lens = decoder_lens(model, batch, labels=labels)
        click.echo(f"{name}: {decoder_lens_text(lens)}")
        saved_in(out, model.name, lens, "decoder_lens", voice)
        return
    options = {"rows": rows, "width": width, "language": language}
    errors = _errors(model, recordings, heads, choose, select, null_draws, seed, options)
    if errors is not None:
        click.echo(f"{name}: {errors_text(errors, top)}\n")
        saved_in(out, model.name, errors, "time_alignment", voice)
        recordings = [recordings[i] for i in errors.judged]
    from interp.heads.alignment import word_times
    from interp.heads.alignment.time_result import CHOSEN

    read = heads or (None if errors is None else errors.heads_of(CHOSEN)) or None
    found = word_times(model, recordings, heads=read, **options)
    click.echo(words_text(found, top))
    saved_in(out, model.name, found, "word_times", voice)


def _asked(
    listed: list[Utterance] | None, audio: tuple[Path, ...], text: tuple[str, ...]
) -> list[Utterance]:
    """Return the recordings of the file, or of --audio and --text."""
    if (listed is None) == (not audio):
        raise OptionError("give --file RECORDINGS.jsonl, or --audio with --text, and not both")
    if listed is not None:
        if text:
            raise OptionError("--text belongs to --audio; the file of --file has its own texts")
        return listed
    if len(text) != len(audio):
        raise OptionError(f"{len(text)} --text for {len(audio)} --audio; give one for each")
    from interp.heads.alignment.recordings import Utterance

    return [Utterance(file, spoken) for file, spoken in zip(audio, text, strict=True)]


def _errors(
    model: Model, recordings: list[Utterance], heads: list[str] | None, choose: int,
    select: float, null_draws: int, seed: int, options: dict[str, Any],
) -> TimeAlignments | None:  # fmt: skip
    """Return the errors against gold times; None where no recording has any.

    Raises:
        PromptError: only some recordings have gold times.
    """
    if not any(one.words for one in recordings):
        return None
    from interp.heads.alignment import word_time_errors

    if len(recordings) < 4:
        choose = 0  # too few to choose on some and judge by others
    return word_time_errors(
        model, recordings, heads=heads, choose=choose, select=select, null_draws=null_draws,
        seed=seed, **options,
    )  # fmt: skip


def errors_text(found: TimeAlignments, top: int) -> str:
    """Format the errors of the heads with the lowest ones, and of all sets of heads."""
    frame: Any = found.to_pandas().sort_values("score", kind="stable")
    frame = frame[frame["layer"].isna() | frame.index.isin(frame.index[:top])]
    table = [("heads", "error", "95 % interval", "rows in random order", "p", "p (Holm)")]
    for r in frame.to_dict("records"):
        ends = "none" if math.isnan(r["low"]) else f"{r['low']:.3f} to {r['high']:.3f}"
        table.append((r["heads_read"], f"{r['score']:.3f}", ends, f"{r['null']:.3f}",
                      f"{r['p']:.2g}", f"{r['p_holm']:.2g}"))  # fmt: skip
    told = [
        f"mean distance of word starts to the gold times in seconds, "
        f"{len(found.judged)} judged recordings",
        aligned_table(table),
        f"  evenly spaced words: {found.even:.3f}",
    ]
    told += [
        f"  {name}: {', '.join(map(str, heads))}"
        for name, heads in zip(found.names, found.of, strict=True)
        if name.endswith("together")
    ]
    return "\n".join(told)


def words_text(found: WordTimes, top: int) -> str:
    """Format the words of the first recording with their times in seconds."""
    frame: Any = found.to_pandas()
    mine = frame[found.of_recording == 0]
    several = len(found.of) > 1
    known = bool(mine["gold"].notna().any())
    columns = [
        ("word", "word"), ("start", "score"), *[("error", "sem")] * several, ("end", "end"),
        ("evenly spaced", "null"), *[("gold start", "gold")] * known,
    ]  # fmt: skip
    table = [tuple(name for name, _ in columns)]
    for r in mine.head(top).to_dict("records"):
        cells = (r[key] for _, key in columns)
        table.append(tuple(x if isinstance(x, str) else _seconds(x) for x in cells))
    number, shown = len(found.recordings), min(top, len(mine))
    more = f", the first {shown} of {len(mine)} words" if shown < len(mine) else ""
    others = f" (the first of {number} recordings)" if number > 1 else ""
    error = "; error: jackknife over the heads" if several else ""
    return (
        f"words of {found.recordings[0]}{others} in seconds, by "
        f"{', '.join(map(str, found.of))}{more}{error}\n{aligned_table(table)}"
    )


def _seconds(value: float) -> str:
    return "unknown" if math.isnan(value) else f"{value:.2f}"
