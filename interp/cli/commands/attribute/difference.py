"""Command `interp attribute difference`: tokens behind the difference of models or prompts."""

from __future__ import annotations

from typing import Any

from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAMES, MODEL_NAME
from interp.cli.run import Input, Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import Spelling


def _other(run: Run) -> Any:
    other = run.values["other_model"]
    return None if other is None else run.load(other)


def _prompts(run: Run) -> Any:
    """Return the lines of FILE; without another model, the first prompt of each."""
    from interp.attribution.evaluation.run import read_texts
    from interp.core.errors import PromptError

    texts = read_texts(run.values["prompts"])
    if run.values["other_model"] is not None:
        return texts
    lines = [text.split("\t") for text in texts]
    if wrong := [i for i, line in enumerate(lines) if len(line) != 2]:
        raise PromptError(
            f"{run.values['prompts']} line {wrong[0] + 1} does not hold two prompts separated by "
            "a tab; write pairs, or give --against"
        )
    run.made["second"] = [b.strip() for _, b in lines]
    return [a.strip() for a, _ in lines]


difference = command(
    "interp.attribution.difference:explain_difference",
    omit=("clusters",),
    inputs={
        "prompts": Input(_prompts, ("prompts",)),
        "other_model": Input(_other, ("other_model",)),
        "other_prompts": Input(lambda run: run.made.get("second")),
    },
    options={
        "prompts": Spelling(
            ("--file",),
            PromptFile(),
            "FILE",
            "File with one text per line; without --against, two prompts separated by a tab.",
        ),
        "other_model": Spelling(("--against",), MODEL_NAME, "MODEL", "Second model."),
        "method": Spelling(type=ATTRIBUTION_NAMES, metavar="NAME[:OPTION=VALUE,...]"),
        "per": Spelling(
            default="token",
            help="Print a row per token, or per position of prompts of one length.",
        ),
    },
    text="interp.report.printed.means:difference_text",
    out="file",
    help="The difference is that of MODEL and --against on the same texts, or of MODEL on the "
    "first and the second prompt of each line. Scores are means over texts with 95 % intervals; p "
    "tests no difference, corrected over rows (Holm).",
    example="interp attribute difference gpt2 --file texts.txt --against tuned --per token",
)
