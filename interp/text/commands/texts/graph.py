"""Command `interp texts graph`: the attention of one prompt as a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import FROM_2, Spelling
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.text.graphs.graph import AttentionGraph
    from interp.text.graphs.inputs import GraphInput


def _check(run: Run) -> None:
    values = run.values
    if values["file"] is None:
        return
    if values["text"] is not None:
        raise OptionError("give --text or --file, not both")
    if values["heads"]:
        raise OptionError("--file averages all heads; leave out --heads")


def _edges(run: Run) -> GraphInput | None:
    from interp.text.graphs import read_graph

    return None if run.values["file"] is None else read_graph(run.values["file"])


@command(
    inputs={"edges": Input(_edges, ("file",))},
    options={
        "file": Spelling(
            type=PromptFile(),
            help="Graph as the prompt: a file with two names per line. Attention between mentions "
            "of nodes is compared with the edges.",
        ),
        "heads": Spelling(help="Heads to average, such as L1H0,L1H1; all by default."),
        "threshold": Spelling(metavar="RULE"),
        "n_random": Spelling(type=FROM_2),
    },
    text="interp.report.printed:nothing",
    check=_check,
    example="interp texts graph MODEL --text 'Tom met Lily. Lily met Ben.'",
)
def graph(
    run: Run,
    model: Model,
    text: str | None = None,
    edges: GraphInput | None = None,
    *,
    heads: Any = None,
    threshold: str = "disparity:0.05",
    n_random: int = 100,
    top: int = 8,
    seed: int = 0,
) -> AttentionGraph:
    """Make a graph of the attention of MODEL between the tokens of a text, and measure it.

    An edge leads from the attending token to the attended one. Motifs and communities are compared
    with random graphs of the same degrees. Without a text, random tokens repeated twice are used.

    Args:
        edges: a graph as the prompt.
        heads: heads to average.
        threshold: rule for what is an edge: value:0.1, count:50, row:2 or disparity:0.05.
        n_random: number of random graphs of each null.
        top: number of edges and nodes to print.
        seed: seed of random graphs and prompt.
    """
    from interp.core.prompts import repeats
    from interp.report.printed.texts import attention_graph_text, compared_text
    from interp.text.graphs import attention_graph

    if edges is not None:
        result = _of_edges(model, edges, threshold)
    else:
        if text is None:
            run.voice.note("no text given: random tokens repeated twice")
        prompt = repeats(model, n=1, seed=seed, max_length=24) if text is None else text
        result = attention_graph(model, prompt, heads=heads, threshold=threshold)
    run.say(attention_graph_text(result, top, n_random, seed))
    if edges is not None:
        run.say(compared_text(result, edges, n_random, seed))
    run.write(result, *(f"graph.{end}" for end in ("json", "csv", "html", "graphml")))
    return result


def _of_edges(model: Model, given: GraphInput, threshold: str) -> AttentionGraph:
    import numpy as np

    from interp.core.prompts import Prompts
    from interp.model.content import result_provenance
    from interp.text.graphs import graph_of, node_attention

    matrix, chain = node_attention(model, given)
    about = result_provenance(model, "interp texts graph", Prompts((chain.ids,), "edges"))
    n = len(given.nodes)
    return graph_of(
        matrix.mean(0),
        given.nodes,
        threshold=threshold,
        seen=np.ones((n, n)),
        kind="attention between mentions",
        provenance=about,
    )
