"""Commands `interp attribute tokens` and `similarity`: importance of tokens, and pairs of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAMES
from interp.cli.run import Input, Run
from interp.cli.vocabulary import FROM_0, FROM_1, Spelling
from interp.cli.wrapping import print_text
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.model import Model


def _texts(run: Run) -> list[str]:
    from interp.attribution.evaluation.run import read_texts

    text, file = run.values["text"], run.values["file"]
    return read_texts(file) if file is not None else [text]


def _check(run: Run) -> None:
    text = run.values["text"]
    if text is None and run.values["file"] is None:
        raise OptionError("give --text, or --file with one text per line, or both")
    if text is not None and not text.strip():
        raise OptionError("the text is empty; give at least one word")


@command(
    inputs={"texts": Input(_texts, ("text", "file"), _check)},
    options={
        "file": Spelling(
            help="File with one text per line, on which the measures are judged; without --text "
            "its first judged text is shown.",
        ),
        "methods": Spelling(
            type=ATTRIBUTION_NAMES,
            default=(),
            help="Methods of `interp list methods`, or the group token_importance; by default this "
            "group and four more measures of attention.",
        ),
        "how": Spelling(metavar="hide|delete|mask|mean|ID"),
        "n_selection": Spelling(type=FROM_0, metavar="N"),
    },
    out=(".json", ".csv"),
    example="interp attribute tokens gpt2 --text 'The keys are on' --file texts.txt "
    "--set n_selection=8",
)
def tokens(
    run: Run,
    model: Model,
    texts: list[str],
    methods: list[str],
    *,
    targets: str | None = None,
    how: str = "hide",
    n_selection: int = 0,
    batch_size: int = 16,
    progress: Any = None,
) -> None:
    """Rank the tokens of a text by published measures of importance, and judge the measures.

    Faithfulness is the rank correlation of a measure's scores with the change of the output when
    each token is hidden, over the texts of FILE: mean, 95 % interval, and p against random scores
    (paired, Holm-corrected over measures).

    Args:
        targets: number on which the effect is measured, as for `interp attribute`; by default the
            model's top prediction.
        how: how a token is removed: hide hides it from the attention of all other tokens.
        n_selection: choose the head of ditto on the first N texts of FILE, and judge on the others.
        batch_size: inputs per forward pass.
    """
    from interp.attribution.declaration import choose_methods
    from interp.attribution.evaluation.importance import COMPARED, compare_importance, with_head
    from interp.attribution.evaluation.removal import token_table
    from interp.attribution.evaluation.run import resolve
    from interp.report.printed.attribution import judged_text, ranks_text
    from interp.report.tokens import write_tables

    chosen, text = choose_methods(methods or COMPARED), run.values["text"]
    comparison = compare_importance(
        model,
        texts,
        chosen,
        targets,
        how=how,
        n_selection=n_selection,
        batch_size=batch_size,
        progress=progress,
    )
    head = comparison.provenance.get("chosen_head", "")
    shown = text if text is not None else comparison.texts[0]
    every = [shown, *(t for t in texts if t != shown)]
    explained = resolve(model, every, targets)[0]
    used = [with_head(one, head) for one in chosen] if head else chosen
    frame = token_table(model, shown, explained, used, how, batch_size)
    print_text(judged_text(comparison, how))
    print_text(ranks_text(frame, shown))
    if len(comparison.texts) < 2:
        run.voice.note("one text has no interval: give more texts with --file")
    if text is not None and text in comparison.texts:
        run.voice.note("the text is among the texts on which the measures are judged")
    if head:
        chose = f"ditto: {head} was chosen on the first {n_selection} text(s), which are not judged"
        run.voice.note(chose)
    write_tables(comparison, frame, run.out)
    for method, at, error in comparison.failures:
        run.failed += 1
        run.voice.error(f"text {at + 1}, {method}: {error}")


def _two(run: Run) -> None:
    if len(run.values["first"]) != 2:
        number = len(run.values["first"])
        raise OptionError(f"give --text twice, once for each sentence; {number} given")


similarity = command(
    "interp.attribution.similarity_matrix:similarity_matrix",
    text="interp.report.printed.tables:top_text",
    omit=("batch_size",),
    inputs={
        "first": Input(lambda run: run.values["first"][0], ("first",), _two),
        "second": Input(lambda run: run.values["first"][1]),
    },
    options={
        "first": Spelling(
            ("--text",), metavar="TEXT", multiple=True, help="A sentence; give the option twice."
        ),
        "steps": Spelling(
            type=FROM_1,
            help="Number of steps of the integral; more make the residual smaller.",
        ),
    },
    out="file",
    help="The parts sum to the cosine, minus what the references contribute, which is printed. A "
    "residual far from 0 means that the integral needs more steps.",
    example="interp attribute similarity models/encoder --text 'A cat.' --text 'The kitten.' "
    "-o pair.csv",
)
