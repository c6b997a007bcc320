"""Command `interp study speech`: times of spoken words from cross attention, with their error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.value_types import ItemFile
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.alignment import Utterance
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model

ENDS = ("json", "csv", "html")


def _recordings(path: str) -> list[Utterance]:
    from interp.alignment.recordings import read_recordings

    return read_recordings(path)


def _asked(run: Run) -> list[Utterance]:
    """Return the recordings of the file, or of --audio and --text."""
    listed, audio, text = (run.values[name] for name in ("recordings", "audio", "text"))
    if (listed is None) == (not audio):
        raise OptionError("give --file RECORDINGS.jsonl, or --audio with --text, and not both")
    if listed is not None:
        if text:
            raise OptionError("--text belongs to --audio; the file of --file has its own texts")
        return listed
    if len(text) != len(audio):
        raise OptionError(f"{len(text)} --text for {len(audio)} --audio; give one for each")
    from interp.alignment.recordings import Utterance

    return [Utterance(file, spoken) for file, spoken in zip(audio, text, strict=True)]


def _require(run: Run) -> None:
    _asked(run)


@command(
    usual="",
    inputs={"recordings": Input(_asked, ("recordings", "audio", "text"), _require)},
    options={
        "recordings": Spelling(
            ("--file",),
            ItemFile(_recordings),
            "FILE",
            "File of recordings and their texts (.jsonl).",
            default=None,
        ),
        "text": Spelling(
            multiple=True, help="Words that are spoken in a recording; one --text per --audio."
        ),
        "heads": Spelling(
            help="Cross-attention heads to read together. By default those chosen on recordings "
            "with gold times, else those that the model declares."
        ),
        "n_random": Spelling(type=FROM_1),
        "top": Spelling(type=FROM_1),
        "language": Spelling(metavar="CODE"),
    },
    text="interp.report.printed:nothing",
    example="interp study speech openai/whisper-tiny --audio a.wav --text 'the cat'",
)
def speech(
    run: Run,
    model: Model,
    recordings: list[Utterance],
    *,
    method: Literal["times", "decoder-lens"] = "times",
    heads: Any = None,
    rows: Literal["emits", "fed"] = "emits",
    language: str | None = None,
    n_random: int = 199,
    top: int = 12,
    seed: int = 0,
) -> Any:
    """Find when words are spoken, by the cross attention of a speech MODEL such as Whisper.

    Each line of the file is an object such as {"audio": "a.wav", "text": "the cat", "words":
    [["the", 0.12], ["cat", 0.34]]}; words give the start in seconds and may be left out. With gold
    times of four or more recordings every head is scored, and heads are chosen on some recordings
    and judged on the others. `interp atlas` reads what --out writes.

    Args:
        method: times: when each word is spoken, and the error against gold times. decoder-lens:
            loss of the text when the decoder reads an earlier encoder layer.
        rows: decoder row that stands for a token: the row that predicts it, or the row that reads
            it.
        language: language of the text, such as en, for a multilingual Whisper.
        n_random: number of random orders of the token rows, the null of the error.
        top: number of heads and of words to print.
        seed: seed of split and null.
    """
    from interp.alignment import word_times
    from interp.alignment.time_result import CHOSEN, heads_of_row
    from interp.report.printed.alignment import errors_text, words_text

    if method == "decoder-lens":
        return _lens(run, model, recordings, language)
    options: dict[str, Any] = {"rows": rows, "language": language}
    errors = _errors(model, recordings, heads, n_random, seed, options)
    if errors is not None:
        run.say(f"{model.name}: {errors_text(errors, top)}\n")
        run.write(errors, *(f"time_alignment.{end}" for end in ENDS))
        recordings = [recordings[i] for i in errors.judged]
    read = heads or (None if errors is None else heads_of_row(errors, CHOSEN)) or None
    times = word_times(model, recordings, heads=read, **options)
    run.say(words_text(times, top))
    run.write(times, *(f"word_times.{end}" for end in ENDS))
    return times


def _lens(run: Run, model: Model, recordings: list[Utterance], language: str | None) -> Any:
    from interp.alignment.heard import heard_recordings, spoken_targets
    from interp.lens import decoder_lens
    from interp.report.printed.lens import decoder_lens_text

    batch, labels = spoken_targets(model, heard_recordings(model, recordings, language=language))
    result = decoder_lens(model, batch, labels=labels)
    run.say(f"{model.name}: {decoder_lens_text(result)}")
    run.write(result, *(f"decoder_lens.{end}" for end in ENDS))
    return result


def _errors(
    model: Model,
    recordings: list[Utterance],
    heads: list[str] | None,
    n_random: int,
    seed: int,
    options: dict[str, Any],
) -> ResultRows | None:
    """Return the errors against gold times; None where no recording has any."""
    if not any(one.words for one in recordings):
        return None
    from interp.alignment import word_time_errors

    if len(recordings) < 4:
        options = options | {"n_heads": 0}  # too few to choose on some and judge by others
    return word_time_errors(
        model,
        recordings,
        heads=heads,
        n_random=n_random,
        seed=seed,
        **options,
    )
