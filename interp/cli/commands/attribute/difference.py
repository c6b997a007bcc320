"""Command `interp attribute difference`: tokens behind the difference of models or prompts."""

from __future__ import annotations

from typing import Any

from interp.cli.loading import source_labels
from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAMES, MODEL_NAME
from interp.cli.run import Input, Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import Spelling


def _other(run: Run) -> Any:
    if run.values["other_model"] is None:
        return None
    [(source, name)] = source_labels([run.values["other_model"]]).items()
    return run.loading.checked(source, name, run.made["progress"])


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
            "a tab; write pairs, or give --other"
        )
    run.made["second"] = [b.strip() for _, b in lines]
    return [a.strip() for a, _ in lines]


difference = command(
    "interp.attribution.difference:explain_difference",
    over="model",
    omit=("clusters",),
    inputs={
        "prompts": Input(_prompts, ("prompts",)),
        "other_model": Input(_other, ("other_model",)),
        "other_prompts": Input(lambda run: run.made.get("second")),
    },
    options={
        "prompts": Spelling(
            ("--file",), PromptFile(), "FILE",
            "File with one text per line; without --other, two prompts separated by a tab.",
        ),
        "other_model": Spelling(("--other",), MODEL_NAME, "MODEL", "Second model."),
        "method": Spelling(("-m", "--method"), ATTRIBUTION_NAMES, "NAME[:OPTION=VALUE,...]"),
        "by": Spelling(
            ("--per",), default="token",
            help="Print a row per token, or per position of prompts of one length.",
        ),
    },
    text="interp.report.printed.means:difference_text",
    out="file",
    loading=(),
    help="The difference is that of MODEL and --other on the same texts, or of MODEL on the first "
    "and the second prompt of each line. Scores are means over texts with 95 % intervals; p tests "
    "no difference, corrected over rows (Holm).",
    example="interp attribute difference gpt2 --file texts.txt --other tuned --per token",
)  # fmt: skip
