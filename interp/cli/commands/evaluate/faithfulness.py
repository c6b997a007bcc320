"""Command `interp evaluate faithfulness`: effect of removing the tokens that methods name."""

from __future__ import annotations

import click

from interp.cli.inputs import read_labels
from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAMES
from interp.cli.run import Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import Spelling
from interp.cli.written import as_given


def _report(run: Run) -> int:
    [(_, [result])] = run.results
    for warning in filter(None, (result.incomplete_warning, result.warning)):
        run.voice.note(warning)
    if run.out is not None:
        result.save_folder(run.out, command=as_given())
        run.voice.note(f"{run.out}: faithfulness.html (open it in a browser), .csv, .json")
    for method, text, error in result.failures:
        run.voice.error(f"text {text + 1}, {method}: {error}")
    return int(bool(result.failures))


faithfulness = command(
    "interp.attribution.evaluation.run:faithfulness",
    also={"interp.attribution.evaluation.run:Settings": ("how", "seed")},
    omit=("baselines", "warn"),
    inputs={"clusters": read_labels("clusters")},
    options={
        "methods": Spelling(
            type=ATTRIBUTION_NAMES,
            default="attn_lrp,gradient_x_input,raw_attention,rollout",
            help="Methods of `interp list methods`. Random scores, the norm of embeddings and the "
            "ranking by occlusion are always included.",
        ),
        "targets": Spelling(
            help="Number to explain, as for `interp attribute`, or nearest: the similarity with "
            "the nearest other text of FILE."
        ),
        "how": Spelling(metavar="delete|mask|mean|ID"),
        "seed": Spelling(type=click.INT),
        "clusters": Spelling(
            type=PromptFile(),
            metavar="FILE",
            help="File with one label per text: texts with the same label share a document or "
            "template, and errors and tests are over labels.",
        ),
    },
    after=_report,
    help="Texts are those of FILE. Means and standard errors are over texts, best method first. "
    '"Beats" lists the methods that a method is better than in a paired permutation test, '
    "corrected for all pairs of methods (Holm, 5 %). With few texts no difference can be "
    "significant; the table then gives the number of texts needed.",
    example="interp evaluate faithfulness gpt2 --file texts.txt -m attn_lrp,rollout -o results",
)
