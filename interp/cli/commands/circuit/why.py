"""Commands `interp circuit graph`, `loadings` and `shares`: why heads attend, what they write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from interp.cli.inputs import traced
from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.value_types import TOKEN
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.errors import OptionError
from interp.core.result_folder import model_folder

if TYPE_CHECKING:
    from interp.circuits.why.shares import QKShares
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model

SHARE = click.FloatRange(0, 1, min_open=True)


def _write_graph(run: Run) -> None:
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
    after=_write_graph,
    example="interp circuit graph MODEL --text 'Once upon a time there was a' -o results",
)


loadings = command(
    "interp.circuits.why.loadings:head_loadings",
    omit=("features",),
    inputs={"prompts": traced("file")},
    options={
        "heads": Spelling(help="Heads to explain."),
        "file": Spelling(
            help="File with one text per line, all of one length in tokens.",
            default=None,
        ),
        "target": Spelling(type=TOKEN, metavar="TOKEN"),
        "top": Spelling(type=FROM_1),
    },
    files=("loadings.json", "loadings.csv", "loadings.html"),
    help="Attention patterns and norms are held at their values in the run; the parts sum to the "
    "effect.",
    text="interp.report.printed.circuits:loadings_text",
    example="interp circuit loadings MODEL --heads L3H1 --text 'When Mary and John' -t ' Mary'",
)


def _rule(text: str) -> Any:
    """Parse pairs of positions; other rules are names."""
    if ":" not in text:
        return text
    try:
        return [(int(q), int(k)) for q, k in (pair.split(":") for pair in text.split(","))]
    except ValueError as error:
        raise OptionError(
            f"--position {text}: give pairs of positions such as 12:3,-1:0"
        ) from error


@command(
    inputs={"prompts": traced("file", "n")},
    options={
        "heads": Spelling(help="Heads to explain."),
        "file": Spelling(
            help="File with one text per line, in place of --text.",
            default=None,
        ),
        "at": Spelling(metavar="RULE", read=_rule),
        "n": Spelling(default=16, help="Number of random prompts if no text is given."),
        "top": Spelling(type=FROM_1),
    },
    example="interp circuit shares bundled:stories --heads L3H1 --position induction --set check",
)
def shares(
    run: Run,
    model: Model,
    heads: list[str],
    prompts: Any,
    *,
    at: str = "strongest",
    null: Literal["keys", "random-weights", "none"] = "keys",
    check: bool = False,
    seed: int = 0,
) -> list[QKShares | ResultRows]:
    """Split the attention scores of heads over pairs of upstream writers.

    A term is what one writer on the query side and one on the key side add to the score. `relative`
    is the term minus its mean over the visible keys: what is equal for all keys has no effect.

    Args:
        at: positions: strongest (each query's most attended key), a detector such as induction, or
            pairs of query and key such as 12:3,-1:0.
        null: null of each term: its mean over visible keys, or random weights.
        check: also remove the largest writers from one side of the head, on held-out prompts, and
            compare the change with the shares.
        seed: seed of prompts and random weights.
    """
    from interp.circuits import check_shares, qk_shares

    results: list[Any] = [qk_shares(model, heads, prompts, at=at, null=null, seed=seed)]
    if check:
        results.append(check_shares(model, heads, prompts, at=at, seed=seed))
    for one, stem in zip(results, ("shares", "share_check"), strict=False):
        run.write(one, *(f"{stem}.{end}" for end in ("json", "csv", "html")))
    return results
