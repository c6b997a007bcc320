"""Command `interp texts influence`: effect of a set of heads on the loss of texts."""

from __future__ import annotations

from typing import Any

import click

from interp.causal.game.interventions import MASKS
from interp.cli.making import command
from interp.cli.name_types import METRIC_NAME
from interp.cli.run import Input, Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import FROM_0, FROM_1, FROM_2, Spelling
from interp.core.errors import OptionError


def _check(run: Run) -> None:
    if (run.values["heads"] is None) == (run.values["metric"] is None):
        raise OptionError("name the heads with --heads, or a metric that ranks them with --metric")
    if run.values["n_random"] == 1:
        raise OptionError("--random 1 gives no standard deviation; give 2 or more, or 0")


def _heads(run: Run) -> Any:
    import interp

    values = run.values
    if values["heads"] is not None:
        return values["heads"]
    scores = interp.score(run.model, values["metric"], null="none", seed=values["seed"])
    best = scores.top(values["top"]).to_pandas()
    chosen = list(zip(best["layer"].tolist(), best["head"].tolist(), strict=True))
    run.voice.note("masked: " + ", ".join(f"L{x}H{h}" for x, h in chosen))
    return chosen


def _number(run: Run) -> None:
    if run.out is not None:
        run.voice.note(f"{len(run.results[0][1][0])} texts in {run.out}")


influence = command(
    "interp.causal.influence.score:attention_influence",
    inputs={
        "heads": Input(_heads, ("heads", "metric", "top"), _check),
        "out": Input(lambda run: run.out),
    },
    options={
        "texts": Spelling(type=PromptFile()),
        "heads": Spelling(help="Heads to mask.", default=None),
        "metric": Spelling(
            ("-m", "--metric"),
            METRIC_NAME,
            "NAME[:OPTION=VALUE,...]",
            "Mask the heads that a metric ranks first, on random tokens repeated twice, instead of "
            "--heads.",
        ),
        "top": Spelling(type=FROM_1, default=4, help="Number of heads taken from --metric."),
        "kind": Spelling(type=click.Choice(MASKS), help="How a head is masked."),
        "stack": Spelling(help="Stack of the heads, if a model has several."),
        "n_random": Spelling(type=FROM_0),
        "max_length": Spelling(type=FROM_2),
        "max_tokens": Spelling(type=FROM_1),
    },
    out="continued",
    after=_number,
    help="FILE is a .txt or .jsonl file; see `--random` for z. The file of --out has a line of "
    "JSON per text and is written once all are scored; an interrupted command resumes.",
    example="interp texts influence bundled:stories --file texts.txt -m induction -o a.jsonl",
)
