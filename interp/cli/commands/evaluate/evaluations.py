"""Commands `interp evaluate`: attribution methods judged, and tasks with and without heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.inputs import read_labels
from interp.cli.making import command
from interp.cli.name_types import ATTRIBUTION_NAMES
from interp.cli.run import Input, Run, say_notes
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import Spelling
from interp.cli.written import as_given

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model


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


def _rationales(run: Run) -> Any:
    from interp.attribution.evaluation.rationales import read_rationales

    annotated = read_rationales(run.values["rationales"])
    run.voice.note(f"{len(annotated)} annotations")
    return annotated


plausibility = command(
    "interp.attribution.evaluation.plausibility:plausibility",
    inputs={"rationales": Input(_rationales, ("rationales",))},
    options={
        "rationales": Spelling(("--file",), click.Path(exists=True, dir_okay=False), "FILE"),
        "methods": Spelling(
            type=ATTRIBUTION_NAMES,
            default="attn_lrp,gradient_x_input,raw_attention,occlusion:how=mean",
        ),
        "targets": Spelling(
            help="Number to explain, as for `interp attribute`; {label} stands for the annotated "
            "class."
        ),
    },
    out="file",
    after=say_notes,
    help="FILE has one annotation per line; documents lie beside it, in the folder docs or in "
    "docs.jsonl. See `interp evaluate faithfulness` for faithfulness to the model.",
    example="interp evaluate plausibility MODEL --file movies/val.jsonl -t class:1",
)


@command(
    inputs={"classes": read_labels("classes")},
    options={
        "methods": Spelling(
            type=ATTRIBUTION_NAMES,
            default="attn_lrp,gradient_x_input,raw_attention,rollout,input_norm",
        ),
        "classes": Spelling(
            type=PromptFile(),
            metavar="FILE",
            help="File with the class of each text: also refit a read-out after the top tokens are "
            "removed (ROAR without training the model again).",
        ),
    },
    after=say_notes,
    example="interp evaluate sanity gpt2 --file texts.txt -m attn_lrp,rollout",
)
def sanity(
    run: Run,
    model: Model,
    texts: Path,
    methods: list[str],
    targets: str | None = None,
    *,
    classes: Any = None,
    seed: int = 0,
    progress: Any = None,
) -> list[ResultRows]:
    """Check attribution methods over the texts of FILE (one per line), and measure their cost.

    The weights are randomised block by block from the last one down: scores that keep their order
    do not depend on what the model learned. Passes and seconds are counted per text.

    Args:
        texts: file with one text per line.
        methods: methods of `interp list methods`.
        targets: number to explain, as for `interp evaluate faithfulness`.
        classes: the class of each text.
        seed: seed of all random draws.
    """
    from interp.attribution.evaluation.cost import method_cost
    from interp.attribution.evaluation.randomisation import randomisation_check
    from interp.attribution.evaluation.refit import refit_check

    shared: Any = {"seed": seed, "progress": progress}
    checks = {
        "randomisation": randomisation_check(model, texts, methods, targets, **shared),
        "cost": method_cost(model, texts, methods, targets),
    }
    if classes is not None:
        checks["refit"] = refit_check(model, texts, classes, methods, targets, **shared)
    for name, one in checks.items():
        run.write(one, f"{name}.json")
    return [*checks.values()]


harness = command(
    "interp.causal.harness.scores:harness_scores",
    omit=("edits",),
    options={
        "tasks": Spelling(
            ("--task",),
            click.STRING,
            "NAME|FILE",
            "Task: a name of `lm-eval ls tasks`, a .yaml of the harness, or a file: .jsonl with "
            "prompt, answer and wrong, or with sentence_good and sentence_bad; .txt for "
            "perplexity. Repeatable.",
            multiple=True,
            read=list,
        ),
        "heads": Spelling(help="Heads whose output is zero in the run `without`."),
        "n": Spelling(help="First documents of each task; by default all."),
        "n_random": Spelling(
            help="Random sets of as many heads of the same layers, the null of `without`."
        ),
    },
    files=("harness.json", "harness.csv", "harness.html"),
    example="interp evaluate harness gpt2 --task pairs.jsonl --heads L5H1,L6H9 -o results",
)
