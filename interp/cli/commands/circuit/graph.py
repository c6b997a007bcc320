"""Command `interp circuit graph`: attribution graph of one prompt."""

from __future__ import annotations

import click

from interp.cli.inputs import traced
from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.value_types import TOKEN
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.result_folder import model_folder

SHARE = click.FloatRange(0, 1, min_open=True)


def _write(run: Run) -> None:
    [(_, [result])] = run.results
    files = ("graph.graphml", "graph.svg", "graph.html", "edges.csv")
    run.write(result, *files)
    if run.out is not None:
        path = model_folder(run.out, run.model.name) / "graph.json"
        result.to_circuit_tracer(path)
        run.voice.note(f"{path}: for circuit-tracer's front end")


graph = command(
    "interp.circuits.why.attribution_graph:attribution_graph",
    omit=("mass", "most_logits", "features"),
    inputs={"prompt": traced()},
    loading=("chat",),
    options={
        "targets": Spelling(
            type=TOKEN,
            multiple=True,
            metavar="TOKEN",
            default=(),
            help="Token whose logit is a node; repeatable. By default the most probable tokens up "
            "to 95 % of the probability, at most 10.",
        ),
        "top": Spelling(type=FROM_1),
    },
    after=_write,
    example="interp circuit graph MODEL --text 'Once upon a time there was a' -o results",
)
