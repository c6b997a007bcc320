"""Commands `interp circuit trace` and `path`: states and routes that are patched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.bundled import usual_task
from interp.cli.inputs import CONTRAST
from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import FROM_1, Spelling

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model

SITES = ("stream", "attention", "mlp")


@command(
    also={
        "interp.circuits.causal_tracing:causal_tracing": (
            "corrupt",
            "per",
            "window",
            "sever",
            "seed",
            "progress",
        )
    },
    options={
        "facts": Spelling(("--file",), PromptFile(), "FILE"),
        "sites": Spelling(type=click.Choice(SITES), multiple=True),
        "window": Spelling(
            type=FROM_1,
            help="Number of layers restored together; by default 1 for the stream, else a fifth of "
            "the layers.",
        ),
        "sever": Spelling(type=click.Choice(["attention", "mlp"]), default=None),
        "n": Spelling(help="Trace only the first facts."),
    },
    example="interp circuit trace gpt2 --file facts.jsonl --site mlp --site attention",
)
def trace(
    run: Run,
    model: Model,
    facts: Path | None = None,
    sites: tuple[str, ...] = (),
    *,
    n: int | None = None,
    **options: Any,
) -> Iterator[ResultRows]:
    """Restore activations of MODEL in a noisy run on facts, and measure how the answer comes back.

    Noise on the subject makes the model lose the answer; each place is restored alone. FILE holds
    lines of {"prompt": "The Eiffel Tower is in", "subject": "Eiffel Tower"}, each perhaps with an
    "answer", or a .json list of them; without it, capitals of countries, and of bundled:stories who
    has a thing, where its story says to whom it was given. Facts whose answer the model does not
    predict are left out.

    Args:
        facts: file of facts.
        sites: what is restored: what enters a block, the outputs of its heads, or of its MLP; may
            be given several times; by default all three.
        n: trace only the first facts.
    """
    from interp.circuits.causal_tracing import causal_tracing
    from interp.circuits.facts import capitals, read_facts, told_facts

    if facts is not None:
        read = read_facts(facts)
    elif (task := usual_task(run.sources[0])) is not None:
        read = told_facts(model, task, "receiver")
    else:
        read = capitals()
    read = read[:n]
    for site in dict.fromkeys(sites or (("stream",) if "sever" in options else SITES)):
        traced = causal_tracing(model, read, site, **options)
        yield traced
        run.write(traced, *(f"trace_{traced.site}.{end}" for end in ("json", "csv", "html")))


path = command(
    "interp.circuits.path_patching:path_patching",
    text="interp.report.printed.circuits:path_text",
    omit=("resume",),
    inputs={"task": CONTRAST},
    options={
        "task": Spelling(default="induction", help="A task of `interp circuit --list`, or a file."),
        "n": Spelling(type=click.IntRange(4), default=64, help="Number of pairs."),
        "routes": Spelling(
            help="A route such as '2.1>4.3.q>logits': a node (2.1, mlp0, embed, or * for each), "
            "then the inputs that read it; + joins several. May be given several times; quote it, "
            "because of the shell.",
        ),
    },
    out="file",
    example="interp circuit path bundled:stories --task stories:recipient --route '*>3.1.v'",
)
