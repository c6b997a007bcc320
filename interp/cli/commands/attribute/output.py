"""Commands `interp attribute output`, `difference` and `head-weights`: scores of input tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from interp.cli.attributions import ENDS, attributions
from interp.cli.inputs import ASKED
from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAMES, MODEL_NAME
from interp.cli.run import Input, Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import Spelling

if TYPE_CHECKING:
    from interp.attribution.result import Attribution
    from interp.model.model import Model


@command(
    loading=("chat",),
    inputs={"texts": ASKED},
    options={
        "file": Spelling(help="File with one text per line, in place of --text."),
        "methods": Spelling(
            type=ATTRIBUTION_NAMES,
            default=("attn_lrp", "occlusion:how=mean"),
            help="A method of `interp list methods`, several separated by commas, or a .py file "
            "that declares one. Repeatable.",
        ),
    },
    out=ENDS,
    example="interp attribute gpt2 --text 'The keys are on the' -m occlusion -o a.html",
)
def output(
    run: Run,
    model: Model,
    texts: list[str],
    methods: list[str],
    *,
    target: str | None = None,
    position: int = -1,
) -> Iterator[Attribution]:
    """Attribute an output of MODEL to the tokens of a text.

    Scores in the target's unit are parts of it: a positive score means that the token increases the
    target. The difference of their sum from the target is printed, and flagged as incomplete if it
    exceeds a tenth of the target. Compare methods with `interp evaluate faithfulness`.

    Args:
        target: number to explain: WORD or token:WORD, token:WORD|OTHER for a logit difference,
            id:N, class:N, or similarity:TEXT; by default the model's top prediction.
        position: output position of the target; negative counts from the end.
    """
    from interp.attribution.declaration import choose_methods
    from interp.attribution.example import Example

    examples = [
        (i, one, partial(Example, model, one, target, position)) for i, one in enumerate(texts)
    ]
    title = f"{model.name}: attribution of the output"
    yield from attributions(run, examples, choose_methods(methods), title)


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


head_weights = command(
    "interp.attribution.learned_weights:learn_head_weights",
    text="interp.report.printed.tables:top_text",
    omit=("share", "held_out", "clusters", "batch_size"),
    options={
        "how": Spelling(metavar="delete|mask|mean|hide|ID"),
        "top": Spelling(default=8),
    },
    out="file",
    help="Printed are the rank correlations of predicted and true changes on held-out texts, for "
    "the learned weights and for equal ones, against permuted heads; then the heads with the "
    "largest weights and the standard errors of these. The file of --out is for "
    "-m learned_attention:weights=FILE.",
    example="interp attribute head-weights gpt2 --file texts.txt -o weights.json",
)
